package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// Save writes exactly this image, named ref, as a deterministic hybrid archive. It
// verifies the image while it writes. It uses tempDir only if the engine's store
// cannot be read in place.
func (e *Engine) Save(ctx context.Context, img Image, ref, tempDir string, w io.Writer) error {
	content, done, err := e.content(ctx, img, tempDir)
	if err != nil {
		return err
	}
	defer done()
	spec := image.ArchiveSpec{Image: content}
	if ref, _ = submodules.SplitURL(ref); ref != "" {
		spec.RepoTags = []string{ref}
	}
	if err := image.WriteArchive(w, spec); err != nil {
		if errors.Is(err, image.ErrMismatch) {
			err = submodules.Mark(err, submodules.ErrContent)
		}
		return fmt.Errorf("save image %s: %w", img.Config, err)
	}
	return ctx.Err()
}

// content is an image with all its layers at hand.
func (e *Engine) content(ctx context.Context, img Image, tempDir string) (*image.Image, func(), error) {
	o, err := e.openOverlay(ctx)
	if err != nil {
		return nil, nil, err
	}
	if o != nil {
		if c, err := o.image(img); err == nil {
			return c, func() {}, nil
		}
	}
	p, err := e.openContainerdOld(ctx, tempDir)
	if err != nil {
		return nil, nil, err
	}
	if p != nil {
		if c, err := p.image(ctx, img); err == nil {
			return c, func() { _ = p.Close() }, nil
		}
		_ = p.Close()
	}
	name, err := e.spool(ctx, img.ID, tempDir)
	if err != nil {
		return nil, nil, err
	}
	a, err := image.OpenArchive(name)
	// An open file can be read after its name is removed.
	_ = os.Remove(name)
	if err != nil {
		return nil, nil, submodules.Mark(err, submodules.ErrContent)
	}
	for _, c := range a.Images() {
		if c.ConfigDigest != img.Config {
			continue
		}
		// The size of a compressed layer is known only when it has been read.
		if err := image.Verify(c); err != nil {
			a.Close()
			return nil, nil, submodules.Mark(fmt.Errorf("image %s: %w", img.Config, err), submodules.ErrContent)
		}
		return c, func() { a.Close() }, nil
	}
	a.Close()
	return nil, nil, submodules.Mark(fmt.Errorf("docker save gave another image than %s", img.Config), submodules.ErrContent)
}

// spool keeps the stream of docker save in a file.
func (e *Engine) spool(ctx context.Context, id, tempDir string) (name string, err error) {
	r, err := e.cli.ImageSave(ctx, []string{id})
	if err != nil {
		return "", fmt.Errorf("docker save: %w", err)
	}
	defer r.Close()
	f, err := os.CreateTemp(tempDir, "save-*.tar")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, r)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("docker save: %w", err)
	}
	return f.Name(), nil
}

// image is an image of the store with its layers read in place.
func (o *overlay) image(img Image) (*image.Image, error) {
	f, err := os.Open(filepath.Join(o.root, "image", "overlay2", "imagedb", "content", "sha256", img.Config.Hex()))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	config, err := io.ReadAll(io.LimitReader(f, image.MaxConfig+1))
	if err != nil {
		return nil, err
	}
	if digest.Of(config) != img.Config {
		return nil, fmt.Errorf("config %s: %w", img.Config, image.ErrMismatch)
	}
	layers := make([]image.Layer, len(img.DiffIDs))
	for i, d := range img.DiffIDs {
		size, err := o.size(d)
		if err != nil {
			return nil, err
		}
		layers[i] = image.Layer{DiffID: d, Size: size, Open: func() (io.ReadCloser, error) { return o.tar(d) }}
	}
	return image.New(config, layers)
}
