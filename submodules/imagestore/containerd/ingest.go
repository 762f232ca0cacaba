package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/rootfs"
	"github.com/containerd/errdefs"
	ocidigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// Present implements imagestore.Target. It returns the layers whose blobs are in the
// store, and the lowest layers of the image that are already unpacked: containerd may
// have discarded their blobs, and does not need these to run the image. All of them stay
// until Load ends or the Store is closed, also if a deleted image was the last that needed
// them.
func (s *Store) Present(ctx context.Context, diffIDs []image.Digest) (map[image.Digest]image.Descriptor, error) {
	ctx, err := s.leased(ctx)
	if err != nil {
		return nil, err
	}
	blobs, err := s.heldBlobs(ctx, diffIDs)
	if err != nil {
		return nil, err
	}
	present := map[image.Digest]image.Descriptor{}
	for d, desc := range blobs {
		present[d] = image.Descriptor{MediaType: desc.MediaType, Digest: image.Digest(desc.Digest), Size: desc.Size}
	}
	for i, chain := range image.ChainIDs(diffIDs) {
		ok, err := s.heldSnapshot(ctx, chain)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if _, have := present[diffIDs[i]]; !have {
			present[diffIDs[i]] = image.Descriptor{}
		}
	}
	return present, nil
}

// blobs returns the layers' blobs that the content store has.
func (s *Store) blobs(ctx context.Context, diffIDs []image.Digest) (map[image.Digest]ocispec.Descriptor, error) {
	found := map[image.Digest]ocispec.Descriptor{}
	want := map[image.Digest]bool{}
	for _, d := range diffIDs {
		want[d] = true
		info, err := s.content().Info(ctx, ocidigest.Digest(d))
		switch {
		case err == nil:
			found[d] = ocispec.Descriptor{MediaType: image.MediaTypeLayer, Digest: info.Digest, Size: info.Size}
		case !errdefs.IsNotFound(err):
			return nil, fmt.Errorf("blob %s: %w", d, err)
		}
	}
	if len(found) == len(want) {
		return found, nil
	}
	list, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, st := range list {
		for i, d := range st.diffIDs {
			if _, have := found[d]; have || !want[d] {
				continue
			}
			ok, err := s.holds(ctx, st.layers[i])
			if err != nil {
				return nil, err
			}
			if ok {
				l := st.layers[i]
				found[d] = ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size}
			}
		}
	}
	return found, nil
}

var ingests atomic.Int64

// ingest writes one blob. The digest is "" if it is not known yet.
func (s *Store) ingest(ctx context.Context, r io.Reader, want ocidigest.Digest, labels map[string]string) (ocidigest.Digest, int64, error) {
	if want != "" {
		if err := s.hold(ctx, "content", want.String()); err != nil {
			return "", 0, err
		}
	}
	ref := fmt.Sprintf("mender-app-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), ingests.Add(1))
	w, err := content.OpenWriter(ctx, s.content(), content.WithRef(ref), content.WithDescriptor(ocispec.Descriptor{Digest: want}))
	if errdefs.IsAlreadyExists(err) && want != "" {
		if len(labels) == 0 {
			return want, 0, nil
		}
		info := content.Info{Digest: want, Labels: labels}
		var paths []string
		for k := range labels {
			paths = append(paths, "labels."+k)
		}
		_, err = s.content().Update(ctx, info, paths...)
		return want, 0, err
	}
	if err != nil {
		return "", 0, err
	}
	defer w.Close()
	n, err := io.Copy(w, r)
	if err == nil {
		want = w.Digest()
		// containerd does not add an existing blob to the lease (1.6).
		err = s.hold(ctx, "content", want.String())
	}
	if err == nil {
		if err = w.Commit(ctx, n, want, content.WithLabels(labels)); errdefs.IsAlreadyExists(err) {
			err = nil
		}
	}
	if err != nil {
		_ = s.content().Abort(context.WithoutCancel(ctx), ref)
		return "", 0, err
	}
	return want, n, nil
}

// leased returns the context with the lease of this Store, which lasts until release.
func (s *Store) leased(ctx context.Context) (context.Context, error) {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	if s.lease.id == "" {
		l, err := s.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(24*time.Hour))
		if err != nil {
			return nil, fmt.Errorf("containerd lease: %w", err)
		}
		s.lease.id = l.ID
	}
	return leases.WithLease(ctx, s.lease.id), nil
}

// release ends the lease of this Store, if it has one.
func (s *Store) release(ctx context.Context) {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	if s.lease.id != "" {
		_ = s.client.LeasesService().Delete(context.WithoutCancel(ctx), leases.Lease{ID: s.lease.id})
		s.lease.id = ""
	}
}

// hold adds a resource to the context's lease. The garbage collector may remove a resource
// until then: what has to exist is looked for after hold, never before.
func (s *Store) hold(ctx context.Context, kind, id string) error {
	lease, ok := leases.FromContext(ctx)
	if !ok {
		return nil
	}
	err := s.client.LeasesService().AddResource(ctx, leases.Lease{ID: lease}, leases.Resource{Type: kind, ID: id})
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("hold %s: %w", id, err)
	}
	return nil
}

// heldBlobs are the layers' blobs that the content store has, and keeps.
func (s *Store) heldBlobs(ctx context.Context, diffIDs []image.Digest) (map[image.Digest]ocispec.Descriptor, error) {
	blobs, err := s.blobs(ctx, diffIDs)
	if err != nil {
		return nil, err
	}
	for d, desc := range blobs {
		if err := s.hold(ctx, "content", desc.Digest.String()); err != nil {
			return nil, err
		}
		has, err := s.holds(ctx, desc)
		if err != nil {
			return nil, err
		}
		if !has {
			delete(blobs, d)
		}
	}
	return blobs, nil
}

// heldSnapshot reports whether a snapshot is committed, and keeps it.
func (s *Store) heldSnapshot(ctx context.Context, chain image.Digest) (bool, error) {
	if err := s.hold(ctx, "snapshots/"+s.snapshotter, chain.String()); err != nil {
		return false, err
	}
	return s.committed(ctx, chain)
}

// put writes a config or a manifest. It replaces one that a power cut damaged.
func (s *Store) put(ctx context.Context, data []byte, labels map[string]string) error {
	d := ocidigest.FromBytes(data)
	if has, err := s.holds(ctx, ocispec.Descriptor{Digest: d}); err != nil {
		return err
	} else if has {
		whole, err := s.readSmall(ctx, ocispec.Descriptor{Digest: d, Size: int64(len(data))})
		if err == nil && whole == nil {
			err = s.dropBlobs(ctx, d)
		}
		if err != nil {
			return err
		}
	}
	_, _, err := s.ingest(ctx, bytes.NewReader(data), d, labels)
	return err
}

// dropBlobs removes blobs with their files: containerd treats a blob whose file
// exists as complete.
func (s *Store) dropBlobs(ctx context.Context, blobs ...ocidigest.Digest) error {
	for _, d := range blobs {
		s.log("removing the damaged blob %s", d)
		if err := ignoreMissing(s.content().Delete(ctx, d)); err != nil {
			return fmt.Errorf("drop blob %s: %w", d, err)
		}
	}
	return s.collect(ctx)
}

// Load implements imagestore.Target. Blobs are written to the content store as
// they arrive, under a lease. The image gets its name only when it is unpacked,
// which also verifies every layer against its diffID. If the load fails before
// that, containerd collects what is left by itself.
func (s *Store) Load(ctx context.Context, archive io.Reader) error {
	err := s.load(ctx, archive)
	if err != nil && strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return submodules.Mark(err, submodules.ErrSpace)
	}
	return err
}

func (s *Store) load(ctx context.Context, archive io.Reader) error {
	ctx, err := s.leased(ctx)
	if err != nil {
		return err
	}
	defer s.release(ctx)

	members := map[string]ocispec.Descriptor{}
	imgs, err := image.ReadStream(archive, image.Limits{}, image.Handler{
		Layer: func(m image.Member, r io.Reader) error {
			d, n, err := s.ingest(ctx, r, "", nil)
			if err != nil {
				return fmt.Errorf("layer %s: %w", m.Name, err)
			}
			members[m.Name] = ocispec.Descriptor{MediaType: mediaType(m.Compression), Digest: d, Size: n}
			return nil
		},
	})
	if err != nil {
		return err
	}
	for i := range imgs {
		if err := s.assemble(ctx, &imgs[i], members); err != nil {
			return err
		}
	}
	return nil
}

func mediaType(compression string) string {
	switch compression {
	case "gzip":
		return image.MediaTypeLayerGzip
	case "zstd":
		return image.MediaTypeLayerZstd
	}
	return image.MediaTypeLayer
}

// assemble writes the manifest of an image whose layers are here, unpacks it
// and gives it its names.
func (s *Store) assemble(ctx context.Context, img *image.StreamImage, members map[string]ocispec.Descriptor) error {
	blobs, err := s.heldBlobs(ctx, img.DiffIDs)
	if err != nil {
		return err
	}
	for _, chain := range image.ChainIDs(img.DiffIDs) {
		if ok, err := s.heldSnapshot(ctx, chain); err != nil {
			return err
		} else if !ok {
			break
		}
	}
	st := &stored{config: img.ConfigDigest, diffIDs: img.DiffIDs}
	for i, d := range img.DiffIDs {
		desc, ok := members[img.Members[i]]
		if !ok {
			desc, ok = blobs[d]
		}
		if !ok {
			// Unpacked, and its blob discarded: the manifest names the discarded blob.
			desc = ocispec.Descriptor{MediaType: image.MediaTypeLayer, Digest: ocidigest.Digest(d), Size: max(img.Layers[i].Size, 0)}
		}
		st.layers = append(st.layers, desc)
	}
	configDigest := ocidigest.Digest(img.ConfigDigest)
	if err := s.put(ctx, img.Config, nil); err != nil {
		return fmt.Errorf("config %s: %w", img.ConfigDigest, err)
	}
	st.desc = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: configDigest, Size: int64(len(img.Config))}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: st.desc, Layers: st.layers,
	})
	if err != nil {
		return err
	}
	// These labels keep the parts from containerd's garbage collector.
	labels := map[string]string{"containerd.io/gc.ref.content.config": configDigest.String()}
	for i, l := range st.layers {
		labels[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", i)] = l.Digest.String()
	}
	md := ocidigest.FromBytes(manifest)
	if err := s.put(ctx, manifest, labels); err != nil {
		return fmt.Errorf("manifest of %s: %w", img.ConfigDigest, err)
	}
	st.manifest = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: md, Size: int64(len(manifest))}
	st.target = st.manifest
	if err := s.unpack(ctx, st); err != nil {
		return err
	}
	for _, tag := range img.Tags {
		err := s.name(ctx, images.Image{Name: Canonical(tag), Target: st.target, Labels: map[string]string{labelPinned: "pinned", labelManaged: "managed"}})
		if err != nil {
			return err
		}
	}
	return nil
}

// unpack makes the missing snapshots of an image. containerd compares each layer with
// its diffID as it unpacks it.
func (s *Store) unpack(ctx context.Context, st *stored) error {
	ctx, release, err := s.client.WithLease(ctx)
	if err != nil {
		return fmt.Errorf("containerd lease: %w", err)
	}
	defer func() { _ = release(context.WithoutCancel(ctx)) }()
	// A layer below may belong to another image, which is deleted meanwhile.
	for attempt := 1; ; attempt++ {
		if err = s.unpackLayers(ctx, st); !errdefs.IsNotFound(err) || attempt == 5 {
			break
		}
	}
	if err != nil {
		return err
	}
	var chain []ocidigest.Digest
	for _, d := range st.diffIDs {
		chain = append(chain, ocidigest.Digest(d))
	}
	if len(chain) == 0 {
		return nil
	}
	label := labelSnapshot + s.snapshotter
	_, err = s.content().Update(ctx, content.Info{
		Digest: st.desc.Digest,
		Labels: map[string]string{label: identity.ChainID(chain).String()},
	}, "labels."+label)
	if err != nil {
		return fmt.Errorf("keep the snapshots of %s: %w", st.config, err)
	}
	return nil
}

func (s *Store) unpackLayers(ctx context.Context, st *stored) error {
	if done, err := s.unpacked(ctx, st.diffIDs); err != nil || done {
		return err
	}
	var chain []ocidigest.Digest
	for i, d := range st.diffIDs {
		layer := rootfs.Layer{Diff: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: ocidigest.Digest(d)}, Blob: st.layers[i]}
		if _, err := rootfs.ApplyLayerWithOpts(ctx, layer, chain, s.snapshots(), s.client.DiffService(), nil, nil); err != nil {
			if strings.Contains(err.Error(), "wrong diff id") {
				err = fmt.Errorf("%w: %w", image.ErrMismatch, err)
			}
			return fmt.Errorf("unpack layer %s: %w", d, err)
		}
		chain = append(chain, layer.Diff.Digest)
	}
	return nil
}
