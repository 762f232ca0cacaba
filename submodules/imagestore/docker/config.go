package docker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
)

// configDigest returns the digest of an image's config. In the classic store
// it is the engine's ID. In the containerd store the ID is the digest of a
// manifest or an index, and the API does not tell the config's; the manifest
// is read from the content store under the data root, or, where that is out of
// reach, from the beginning of the stream of docker save.
func (e *Engine) configDigest(ctx context.Context, id string) (image.Digest, error) {
	d, err := image.ParseDigest(id)
	if err != nil {
		return "", err
	}
	ctd, err := e.containerd(ctx)
	if err != nil || !ctd {
		return d, err
	}
	if read, err := e.blobs(ctx); err != nil {
		return "", err
	} else if read != nil {
		if c, err := configOf(d, read, 0); err == nil {
			return c, nil
		}
	}
	return e.configBySave(ctx, id)
}

// contentStores are where containerd keeps its blobs: below the data root where
// dockerd runs its own containerd, else the system's.
func contentStores(root string) []string {
	const content = "io.containerd.content.v1.content/blobs/sha256"
	return []string{
		filepath.Join(root, "containerd", "daemon", content),
		filepath.Join("/var/lib/containerd", content),
	}
}

// blobs returns a reader of small blobs in the content store, nil where it is
// out of reach.
func (e *Engine) blobs(ctx context.Context) (func(image.Digest) ([]byte, error), error) {
	root, err := e.root(ctx)
	if err != nil || root == "" {
		return nil, err
	}
	var dirs []string
	for _, dir := range contentStores(root) {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil, nil
	}
	return func(d image.Digest) ([]byte, error) {
		var f *os.File
		var err error
		for _, dir := range dirs {
			if f, err = os.Open(filepath.Join(dir, d.Hex())); err == nil {
				break
			}
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, image.MaxConfig+1))
		if err != nil {
			return nil, err
		}
		if image.DigestOf(b) != d {
			return nil, fmt.Errorf("blob %s: %w", d, image.ErrMismatch)
		}
		return b, nil
	}, nil
}

// manifest is an OCI manifest or index, whichever.
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

// configOf follows a manifest, or an index to the first image in it whose
// config is there, to the config's digest.
func configOf(d image.Digest, read func(image.Digest) ([]byte, error), depth int) (image.Digest, error) {
	b, err := read(d)
	if err != nil {
		return "", err
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return "", err
	}
	if m.Config != nil {
		_, err := read(m.Config.Digest)
		return m.Config.Digest, err
	}
	for _, sub := range m.Manifests {
		if sub.Platform != nil && sub.Platform.OS == "unknown" || depth > 2 {
			continue
		}
		if c, err := configOf(sub.Digest, read, depth+1); err == nil {
			return c, nil
		}
	}
	return "", fmt.Errorf("index %s: %w", d, image.ErrMissing)
}

// maxSaveBlobs bounds the small blobs of a docker save stream kept in memory
// while the manifest is looked for.
const maxSaveBlobs = 4 << 20

// configBySave reads the stream of docker save until manifest.json, which names
// the config; layers before it pass by unread.
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
		return image.FromHex(strings.TrimSuffix(filepath.Base(list[0].Config), ".json"))
	}
}
