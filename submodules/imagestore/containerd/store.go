// Package containerd is the image store of a Kubernetes node: containerd's
// namespace k8s.io. Images are found by their identity (config digest and
// diffIDs), never by a name alone. While an application needs an image, a label
// keeps the kubelet from collecting it.
//
// It must not know Kubernetes' objects, nor who calls it.
package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// namespace is where the kubelet's images are.
const namespace = "k8s.io"

// The labels of images. Kubernetes' are containerd's CRI plugin's.
const (
	labelPinned  = "io.cri-containerd.pinned"
	labelManaged = "io.cri-containerd.image"
	labelPod     = "io.kubernetes.pod.uid" // of a container
	labelURLs    = "mender-app.io/urls"    // of an own reference: what manifests call the image

	// of a config, with the snapshotter's name: the chain that the image has there
	labelSnapshot = "containerd.io/gc.ref.snapshot."
)

// Places are the paths of containerd's socket in the usual distributions: k3s, k0s,
// microk8s, and containerd's own.
var Places = []string{
	"/run/k3s/containerd/containerd.sock",
	"/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
	"/run/containerd/containerd.sock",
}

// Config says where containerd is. The zero value looks in the usual places.
type Config struct {
	Address     string // of the socket, with or without unix://
	Snapshotter string // "": the one that the node's containers use
	TempDir     string // for old content that cannot be read in place; "": the system's
}

// Store is the node's image store.
type Store struct {
	client      *containerd.Client
	snapshotter string
	tempDir     string
	log         func(format string, args ...any)
	booted      time.Time // when the machine was started

	lease *lease
}

// lease keeps parts of images for a Load; see leased.
type lease struct {
	mu sync.Mutex
	id string // "" if there is none
}

// Open connects to containerd.
func Open(ctx context.Context, c Config) (*Store, error) {
	address := strings.TrimPrefix(c.Address, "unix://")
	if address == "" {
		for _, p := range Places {
			if _, err := os.Stat(p); err == nil {
				address = p
				break
			}
		}
	}
	if address == "" {
		return nil, fmt.Errorf("no containerd: set K8S_CTR_ADDRESS; looked for %s", strings.Join(Places, ", "))
	}
	if _, err := os.Stat(address); err != nil {
		return nil, fmt.Errorf("containerd's socket: %w", err)
	}
	client, err := containerd.New(address, containerd.WithDefaultNamespace(namespace), containerd.WithTimeout(10*time.Second))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", address, err)
	}
	s := &Store{client: client, snapshotter: c.Snapshotter, tempDir: c.TempDir, log: func(string, ...any) {}, booted: bootTime(), lease: &lease{}}
	if s.snapshotter == "" {
		if s.snapshotter, err = s.findSnapshotter(ctx); err != nil {
			_ = client.Close()
			return nil, fmt.Errorf("containerd at %s: %w", address, err)
		}
	}
	return s, nil
}

// SetLog sets the function that log lines go to.
func (s *Store) SetLog(log func(format string, args ...any)) { s.log = log }

// SetTempDir sets the directory for temporary files, instead of Config.TempDir.
func (s *Store) SetTempDir(dir string) { s.tempDir = dir }

// Close ends the connection.
func (s *Store) Close() error {
	s.release(context.Background())
	return s.client.Close()
}

// findSnapshotter returns the snapshotter that the kubelet's containers use; on a
// node without containers, containerd's default.
func (s *Store) findSnapshotter(ctx context.Context) (string, error) {
	list, err := s.client.ContainerService().List(ctx)
	if err != nil {
		return "", fmt.Errorf("list containers: %w", err)
	}
	name, when := "overlayfs", time.Time{}
	for _, c := range list {
		if c.Snapshotter != "" && c.CreatedAt.After(when) {
			name, when = c.Snapshotter, c.CreatedAt
		}
	}
	return name, nil
}

func (s *Store) snapshots() snapshots.Snapshotter { return s.client.SnapshotService(s.snapshotter) }
func (s *Store) content() content.Store           { return s.client.ContentStore() }

// Canonical returns the full form of a reference, as Kubernetes expands it: web is
// docker.io/library/web:latest.
func Canonical(ref string) string {
	ref = image.FamiliarRef(ref)
	domain, _, hasPath := strings.Cut(ref, "/")
	switch {
	case !hasPath:
		return "docker.io/library/" + ref
	case strings.ContainsAny(domain, ".:") || domain == "localhost":
		return ref
	}
	return "docker.io/" + ref
}

// stored is one image for one platform, as the store has it.
type stored struct {
	names    []string
	target   ocispec.Descriptor // of the names: its manifest, or an index
	manifest ocispec.Descriptor
	config   image.Digest
	desc     ocispec.Descriptor // of the config
	platform image.Platform
	diffIDs  []image.Digest
	layers   []ocispec.Descriptor
	labels   map[string]map[string]string // of each name
}

// is reports whether the image has that identity. id.Config may be the digest of
// the manifest that it was loaded by: one of its names has that digest then.
func (st *stored) is(id imagestore.Identity) bool {
	known := st.config == id.Config || slices.ContainsFunc(st.names, func(n string) bool { return imagestore.IsManifestRef(n, id.Config) })
	return known && (id.DiffIDs == nil || slices.Equal(st.diffIDs, id.DiffIDs))
}

// own returns the application's own reference to the image, made from the digest that
// the caller used for it. With the zero id it is OwnRef.
func (st *stored) own(app string, id imagestore.Identity) string {
	if id.Config == "" || id.Config == st.config {
		return imagestore.OwnRef(app, st.config)
	}
	return imagestore.ManifestRef(app, id.Config)
}

// owns are the own references of the application that the image has.
func (st *stored) owns(app string) (refs []string) {
	for _, n := range st.names {
		d, ok := imagestore.ParseOwnRef(app, n)
		if _, manifest := imagestore.ParseManifestRef(app, n); manifest || ok && d == st.config {
			refs = append(refs, n)
		}
	}
	return refs
}

// all returns the store's images. It leaves out images whose manifest or config is
// missing or damaged: they cannot run.
func (s *Store) all(ctx context.Context) ([]*stored, error) {
	list, err := s.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var out []*stored
	byTarget := map[ocidigest.Digest][]*stored{}
	for _, img := range list {
		have, seen := byTarget[img.Target.Digest]
		if !seen {
			if have, err = s.resolve(ctx, img.Target, 0); err != nil {
				return nil, fmt.Errorf("image %s: %w", img.Name, err)
			}
			for _, st := range have {
				st.target = img.Target
			}
			byTarget[img.Target.Digest] = have
			out = append(out, have...)
		}
		for _, st := range have {
			st.names = append(st.names, img.Name)
			st.labels[img.Name] = img.Labels
		}
	}
	return out, nil
}

// resolve reads the manifests under a descriptor.
func (s *Store) resolve(ctx context.Context, desc ocispec.Descriptor, depth int) ([]*stored, error) {
	if desc.Size > image.MaxConfig || depth > 2 {
		return nil, nil
	}
	data, err := s.readSmall(ctx, desc)
	if err != nil || data == nil {
		return nil, err
	}
	if images.IsIndexType(desc.MediaType) {
		var index ocispec.Index
		if json.Unmarshal(data, &index) != nil {
			return nil, nil
		}
		var out []*stored
		for _, m := range index.Manifests {
			sub, err := s.resolve(ctx, m, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, sub...)
		}
		return out, nil
	}
	var m ocispec.Manifest
	if !images.IsManifestType(desc.MediaType) || json.Unmarshal(data, &m) != nil || m.Config.Size > image.MaxConfig {
		return nil, nil
	}
	raw, err := s.readSmall(ctx, m.Config)
	if err != nil || raw == nil {
		return nil, err
	}
	c, err := image.ParseConfig(raw)
	if err != nil || len(c.RootFS.DiffIDs) != len(m.Layers) {
		return nil, nil // an attestation, or no image of ours
	}
	return []*stored{{
		manifest: desc, config: image.Digest(m.Config.Digest), desc: m.Config, platform: c.Platform(),
		diffIDs: c.RootFS.DiffIDs, layers: m.Layers, labels: map[string]map[string]string{},
	}}, nil
}

// readSmall reads a manifest or a config. It is nil if the blob is missing or does
// not match its digest. An error comes from the connection or the context.
func (s *Store) readSmall(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	data, err := content.ReadBlob(ctx, s.content(), ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
	if err != nil && (ctx.Err() != nil || errdefs.IsUnavailable(err)) {
		return nil, err
	}
	if err != nil || ocidigest.FromBytes(data) != desc.Digest {
		return nil, nil // a power cut removed or emptied the file
	}
	return data, nil
}

// find returns the image with the identity, nil if it is missing.
func (s *Store) find(ctx context.Context, id imagestore.Identity) (*stored, error) {
	list, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	var best *stored
	for _, st := range list {
		if !st.is(id) {
			continue
		}
		if best == nil {
			best = st
		}
		if whole, err := s.whole(ctx, st); err != nil {
			return nil, err
		} else if whole {
			return st, nil
		}
	}
	return best, nil
}

// whole reports whether an image can run: it is unpacked, or can be.
func (s *Store) whole(ctx context.Context, st *stored) (bool, error) {
	unpacked, err := s.unpacked(ctx, st.diffIDs)
	if err != nil || unpacked {
		return unpacked, err
	}
	for _, l := range st.layers {
		ok, err := s.holds(ctx, l)
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func (s *Store) unpacked(ctx context.Context, diffIDs []image.Digest) (bool, error) {
	if len(diffIDs) == 0 {
		return true, nil
	}
	chain := image.ChainIDs(diffIDs)
	return s.committed(ctx, chain[len(chain)-1])
}

func (s *Store) committed(ctx context.Context, chain image.Digest) (bool, error) {
	info, err := s.snapshots().Stat(ctx, chain.String())
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("snapshot %s: %w", chain, err)
	}
	return info.Kind == snapshots.KindCommitted, nil
}

// holds reports whether a blob is in the content store.
func (s *Store) holds(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	_, err := s.content().Info(ctx, desc.Digest)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Has implements imagestore.Target.
func (s *Store) Has(ctx context.Context, id imagestore.Identity) (bool, error) {
	st, err := s.find(ctx, id)
	if err != nil || st == nil {
		return false, err
	}
	return s.whole(ctx, st)
}

// Find implements imagestore.Store. An image that cannot run counts as missing:
// loading it again repairs it.
func (s *Store) Find(ctx context.Context, _ string, id imagestore.Identity, hint string) (imagestore.Stored, error) {
	st, err := s.find(ctx, id)
	if err != nil {
		return imagestore.Stored{}, err
	}
	if st != nil {
		if whole, err := s.whole(ctx, st); err != nil || whole {
			return st.described(), err
		}
	}
	return imagestore.Stored{}, missing(hint, id)
}

// Named implements imagestore.Store.
func (s *Store) Named(ctx context.Context, ref string) (imagestore.Stored, error) {
	st, err := s.means(ctx, ref)
	if err != nil {
		return imagestore.Stored{}, err
	}
	return st.described(), nil
}

// means finds the image that a reference means.
func (s *Store) means(ctx context.Context, ref string) (*stored, error) {
	ref, want := submodules.SplitURL(ref)
	st, err := s.named(ctx, ref, imagestore.Identity{})
	if err == nil && want != "" && want != st.config && want != image.Digest(st.target.Digest) {
		return nil, imagestore.OtherImage(ref, want, st.config)
	}
	return st, err
}

// described is the image as imagestore sees it.
func (st *stored) described() imagestore.Stored {
	return imagestore.Stored{Identity: imagestore.Identity{Config: st.config, DiffIDs: st.diffIDs}, Platform: st.platform}
}

// Config returns the config digest of the image that a reference in a manifest names;
// "" if the image is missing or incomplete.
func (s *Store) Config(ctx context.Context, ref string) (image.Digest, error) {
	list, err := s.all(ctx)
	if err != nil {
		return "", err
	}
	name := Canonical(ref)
	for _, st := range list {
		if !slices.Contains(st.names, name) {
			continue
		}
		if ok, err := s.whole(ctx, st); err != nil || ok {
			return st.config, err
		}
	}
	return "", nil
}
