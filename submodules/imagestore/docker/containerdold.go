package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// containerdOld reads layers and configs of the containerd image store in place:
// blobs from the content store, and files from the snapshotter's directories.
type containerdOld struct {
	imagestore.Old
	dirs   contentDirs
	at     *snapshots // nil if containerd's socket cannot be reached
	layers map[image.Digest]layerPlace
}

type layerPlace struct {
	blob  image.Digest
	chain image.Digest
}

// openContainerdOld lists the content of the store. It returns nil if the engine has
// another store, or if the content store cannot be reached.
func (e *Engine) openContainerdOld(ctx context.Context, tempDir string) (*containerdOld, error) {
	if ctd, err := e.containerd(ctx); err != nil || !ctd {
		return nil, err
	}
	dirs, err := e.contentDirs(ctx)
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	p := &containerdOld{dirs: dirs, layers: map[image.Digest]layerPlace{}}
	if p.at, err = e.openSnapshots(ctx); err != nil {
		return nil, err
	}
	all, err := e.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, img := range all {
		if len(img.layers) != len(img.DiffIDs) {
			continue
		}
		chains := image.ChainIDs(img.DiffIDs)
		for i, d := range img.DiffIDs {
			desc := img.layers[i]
			// Prefer a blob that is not compressed.
			if _, have := p.layers[d]; desc.Digest.Valid() && dirs.has(desc) && (!have || desc.Digest == d) {
				p.layers[d] = layerPlace{desc.Digest, chains[i]}
			}
		}
	}
	p.Old = imagestore.UnpackedStore{
		Layer: p.find, Config: p.config, TempDir: tempDir,
		Log: func(format string, args ...any) { e.log(fmt.Sprintf(format, args...)) },
	}.Old()
	return p, nil
}

// Close implements imagestore.Old.
func (p *containerdOld) Close() error {
	err := p.Old.Close()
	if p.at != nil {
		err = errors.Join(err, p.at.Close())
	}
	return err
}

func (p *containerdOld) find(_ context.Context, d image.Digest) (imagestore.LayerParts, error) {
	l, ok := p.layers[d]
	if !ok {
		return imagestore.LayerParts{}, delta.ErrNoObject
	}
	parts := imagestore.LayerParts{Blob: func(context.Context) (delta.File, error) {
		f, err := p.dirs.open(l.blob)
		if err != nil {
			return nil, err
		}
		return imagestore.NewFile(f)
	}}
	if p.at != nil {
		parts.Dir = func(ctx context.Context) (*os.Root, error) { return p.at.dir(ctx, l.chain) }
	}
	return parts, nil
}

func (p *containerdOld) config(_ context.Context, d image.Digest) (delta.File, error) {
	f, err := p.dirs.open(d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("config %s: %w", d, delta.ErrNoObject)
	}
	if err != nil {
		return nil, err
	}
	return imagestore.NewFile(f)
}

// image is an image of the store with its layers read in place. Compressed layers
// are read an extra time for their size.
func (p *containerdOld) image(ctx context.Context, img Image) (*image.Image, error) {
	config, err := p.dirs.small(img.Config)
	if err != nil {
		return nil, err
	}
	layers := make([]image.Layer, len(img.DiffIDs))
	for i, d := range img.DiffIDs {
		r, size, err := p.Layer(ctx, d)
		if err != nil {
			return nil, err
		}
		if err := r.Close(); err != nil {
			return nil, err
		}
		layers[i] = image.Layer{DiffID: d, Size: size, Open: func() (io.ReadCloser, error) {
			r, _, err := p.Layer(ctx, d)
			return r, err
		}}
	}
	return image.New(config, layers)
}

// containerdRoots asks the engine's containerd where it keeps its files.
func (e *Engine) containerdRoots(ctx context.Context) (map[string]string, error) {
	s, err := e.openSnapshots(ctx)
	if err != nil || s == nil {
		return nil, err
	}
	defer s.Close()
	return s.roots(ctx)
}

// old opens the engine's old content: in place if possible, else through docker
// save. layers are those that the caller will read.
func (e *Engine) old(ctx context.Context, layers []image.Digest, tempDir string) (imagestore.Old, error) {
	o, err := e.openOverlay(ctx)
	if err != nil {
		return nil, err
	}
	if o != nil {
		e.log("old content is read in place, from " + o.root)
		return o, nil
	}
	p, err := e.openContainerdOld(ctx, tempDir)
	if err != nil {
		return nil, err
	}
	if p != nil {
		where := p.dirs[0]
		if p.at != nil {
			where += " and where containerd unpacked it to"
		}
		e.log("old content is read in place, from " + where)
		return p, nil
	}
	return e.openSaveArchive(slices.Clone(layers), tempDir), nil
}
