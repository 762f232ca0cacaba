package docker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

// configDigest returns the digest of an image's config and, if the containerd store
// can be read, the descriptors of its layers. In the classic store the engine's ID is
// the config's digest. In the containerd store the ID is the digest of a manifest or
// an index, and the API does not tell the config's digest. configDigest reads it from
// the manifest in the content store under the data root, or, if that cannot be
// reached, from the stream of docker save.
func (e *Engine) configDigest(ctx context.Context, id string) (image.Digest, []image.Descriptor, error) {
	d, err := digest.Parse(id)
	if err != nil {
		return "", nil, err
	}
	ctd, err := e.containerd(ctx)
	if err != nil || !ctd {
		return d, nil, err
	}
	dirs, err := e.contentDirs(ctx)
	if err != nil {
		return "", nil, err
	}
	if m, err := dirs.image(d, 0); err == nil {
		return m.Config.Digest, m.Layers, nil
	}
	// An ID is a digest of the content, so the result of one save stays valid.
	e.mu.Lock()
	c, known := e.configs[id]
	e.mu.Unlock()
	if known {
		return c, nil, nil
	}
	if c, err = e.configBySave(ctx, id); err != nil {
		return "", nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.configs == nil {
		e.configs = map[string]image.Digest{}
	}
	e.configs[id] = c
	return c, nil, nil
}

// contentStores are the directories where containerd keeps its blobs: below the data
// root if dockerd runs its own containerd, else the system's.
func contentStores(root string) []string {
	const content = "io.containerd.content.v1.content/blobs/sha256"
	return []string{
		filepath.Join(root, "containerd", "daemon", content),
		filepath.Join("/var/lib/containerd", content),
	}
}

// contentDirs are the directories of a content store; none if it cannot be reached.
type contentDirs []string

func (e *Engine) contentDirs(ctx context.Context) (contentDirs, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.contents) > 0 {
		return e.contents, nil
	}
	// An engine that never had an image has no such directory yet.
	dirs, err := e.findContent(ctx)
	e.contents = dirs
	return dirs, err
}

func (e *Engine) findContent(ctx context.Context) (contentDirs, error) {
	root, err := e.root(ctx)
	if err != nil || root == "" {
		return nil, err
	}
	var dirs contentDirs
	add := func(dir string) {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range contentStores(root) {
		add(dir)
	}
	if len(dirs) == 0 {
		if roots, err := e.containerdRoots(ctx); err == nil && roots["content"] != "" {
			add(filepath.Join(roots["content"], "blobs", "sha256"))
		}
	}
	return dirs, nil
}

// open opens a blob. A missing blob is fs.ErrNotExist.
func (dirs contentDirs) open(d image.Digest) (*os.File, error) {
	for _, dir := range dirs {
		f, err := os.Open(filepath.Join(dir, d.Hex()))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("blob %s: %w", d, fs.ErrNotExist)
}

// has reports whether the store holds the whole blob.
func (dirs contentDirs) has(d image.Descriptor) bool {
	for _, dir := range dirs {
		if fi, err := os.Stat(filepath.Join(dir, d.Digest.Hex())); err == nil && fi.Size() == d.Size {
			return true
		}
	}
	return false
}

// small reads and verifies a small blob.
func (dirs contentDirs) small(d image.Digest) ([]byte, error) {
	f, err := dirs.open(d)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("blob %s: %w", d, image.ErrMissing)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, image.MaxConfig+1))
	if err != nil {
		return nil, err
	}
	if digest.Of(b) != d {
		return nil, fmt.Errorf("blob %s: %w", d, image.ErrMismatch)
	}
	return b, nil
}

// manifest is an OCI manifest or an OCI index.
type manifest struct {
	Config    *image.Descriptor  `json:"config"`
	Layers    []image.Descriptor `json:"layers"`
	Manifests []struct {
		image.Descriptor
		Platform *struct {
			OS string `json:"os"`
		} `json:"platform"`
	} `json:"manifests"`
}

// image returns a manifest, or for an index the first manifest in it whose config
// is in the store.
func (dirs contentDirs) image(d image.Digest, depth int) (manifest, error) {
	b, err := dirs.small(d)
	if err != nil {
		return manifest{}, err
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return manifest{}, err
	}
	if m.Config != nil {
		_, err := dirs.small(m.Config.Digest)
		return m, err
	}
	for _, sub := range m.Manifests {
		if sub.Platform != nil && sub.Platform.OS == "unknown" || depth > 2 {
			continue
		}
		if c, err := dirs.image(sub.Digest, depth+1); err == nil {
			return c, nil
		}
	}
	return manifest{}, fmt.Errorf("index %s: %w", d, image.ErrMissing)
}

// maxSaveBlobs bounds the small blobs of a docker save stream kept in memory
// while the manifest is looked for.
const maxSaveBlobs = 4 << 20

// configBySave reads the stream of docker save until manifest.json, which names
// the config; it skips the layers before.
func (e *Engine) configBySave(ctx context.Context, id string) (image.Digest, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := e.cli.ImageSave(ctx, []string{id})
	if err != nil {
		return "", fmt.Errorf("docker save: %w", err)
	}
	defer r.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err != nil {
			return "", fmt.Errorf("docker save: find the config: %w", err)
		}
		if h.Name != "manifest.json" || h.Size > maxSaveBlobs {
			continue
		}
		var list []struct{ Config string }
		if err := json.NewDecoder(io.LimitReader(tr, maxSaveBlobs)).Decode(&list); err != nil || len(list) == 0 {
			return "", fmt.Errorf("docker save: manifest.json: %w", image.ErrFormat)
		}
		return digest.FromHex(strings.TrimSuffix(filepath.Base(list[0].Config), ".json"))
	}
}
