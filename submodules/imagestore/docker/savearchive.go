package docker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// saveArchive reads old content through docker save, for engines whose store
// cannot be read in place: remote ones, and other storage drivers. The wanted
// layers of a saved image are kept, uncompressed and hashed, in unlinked files in
// the temporary directory; the others are skipped. Layers are kept whole: a delta
// names an old file only when the files before it have been decoded
// (delta/FORMAT.md), and it reads most of them (docs/DOCKER-COMPOSE.md has
// figures).
type saveArchive struct {
	e       *Engine
	dir     string
	images  []Image // nil before the first read
	asked   bool
	want    map[image.Digest]bool
	layers  map[image.Digest]*imagestore.SavedLayer
	configs map[image.Digest][]byte
}

// openSaveArchive prepares for the layers want. Reading another layer costs another
// docker save.
func (e *Engine) openSaveArchive(want []image.Digest, dir string) *saveArchive {
	s := &saveArchive{e: e, dir: dir, want: map[image.Digest]bool{}, layers: map[image.Digest]*imagestore.SavedLayer{}, configs: map[image.Digest][]byte{}}
	for _, d := range want {
		s.want[d] = true
	}
	return s
}

// Close implements imagestore.Old.
func (s *saveArchive) Close() error {
	var kept, read int64
	for _, l := range s.layers {
		kept += l.Size()
		read += l.Opened()
		_ = l.Close()
	}
	if kept > 0 {
		s.e.log(fmt.Sprintf("of %d bytes of layers that were kept, files of %d bytes were read", kept, read))
	}
	return nil
}

// fetch saves images until the layer is found, those with most of the wanted
// layers first.
func (s *saveArchive) fetch(ctx context.Context, has func(Image) bool, there func() bool) error {
	if !s.asked {
		all, err := s.e.all(ctx)
		if err != nil {
			return err
		}
		s.images, s.asked = all, true
	}
	missing := func(img Image) (n int) {
		for _, d := range img.DiffIDs {
			if s.want[d] && s.layers[d] == nil {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(s.images, func(a, b Image) int { return missing(b) - missing(a) })
	for _, img := range s.images {
		if !has(img) {
			continue
		}
		if err := s.save(ctx, img); err != nil {
			return err
		}
		if there() {
			return nil
		}
	}
	return delta.ErrNoObject
}

// save reads the stream of docker save once.
func (s *saveArchive) save(ctx context.Context, img Image) error {
	r, err := s.e.cli.ImageSave(ctx, []string{img.ID})
	if err != nil {
		return fmt.Errorf("docker save: %w", err)
	}
	defer r.Close()
	var kept int64
	imgs, err := image.ReadStream(r, image.Limits{}, image.Handler{Layer: func(m image.Member, r io.Reader) error {
		// From 25 on the name is the blob's digest; earlier versions use other names.
		if name, ok := strings.CutPrefix(m.Name, "blobs/sha256/"); ok && m.Compression == "" {
			if d, err := digest.FromHex(name); err == nil && !s.wants(d) {
				return nil
			}
		}
		d, l, err := keepLayer(s.dir, r)
		if err != nil {
			return err
		}
		if !s.wants(d) {
			return l.Close()
		}
		s.layers[d] = l
		kept += l.Size()
		return nil
	}})
	if err != nil {
		return fmt.Errorf("docker save: %w", err)
	}
	for _, in := range imgs {
		s.configs[in.ConfigDigest] = in.Config
	}
	s.e.log(fmt.Sprintf("old content is read out of docker save %s: %d bytes of layers are kept meanwhile", img.ID, kept))
	return nil
}

func (s *saveArchive) wants(d image.Digest) bool { return s.want[d] && s.layers[d] == nil }

// layer returns a layer, and fetches it if it is not kept yet.
func (s *saveArchive) layer(ctx context.Context, d delta.Digest) (*imagestore.SavedLayer, error) {
	if s.layers[d] == nil {
		s.want[d] = true
		err := s.fetch(ctx, func(img Image) bool { return slices.Contains(img.DiffIDs, d) }, func() bool { return s.layers[d] != nil })
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", d, err)
		}
	}
	return s.layers[d], nil
}

// OpenFile implements delta.Old.
func (s *saveArchive) OpenFile(ctx context.Context, d delta.Digest, name string) (delta.File, error) {
	if name != "" {
		l, err := s.layer(ctx, d)
		if err != nil {
			return nil, err
		}
		return l.OpenFile(name)
	}
	if s.configs[d] == nil {
		err := s.fetch(ctx, func(img Image) bool { return img.Config == d }, func() bool { return s.configs[d] != nil })
		if err != nil {
			return nil, fmt.Errorf("config %s: %w", d, err)
		}
	}
	return imagestore.NewBlob(s.configs[d]), nil
}

// Headers implements delta.Old.
func (s *saveArchive) Headers(ctx context.Context, d delta.Digest) (delta.HeaderReader, error) {
	l, err := s.layer(ctx, d)
	if err != nil {
		return nil, err
	}
	return l.Headers()
}

// Layer implements imagestore.Old.
func (s *saveArchive) Layer(ctx context.Context, d image.Digest) (io.ReadCloser, int64, error) {
	l, err := s.layer(ctx, d)
	if err != nil {
		return nil, 0, err
	}
	return l.Tar(), l.Size(), nil
}

// keepLayer writes a layer, uncompressed, to an unlinked file, and hashes it.
func keepLayer(dir string, r io.Reader) (image.Digest, *imagestore.SavedLayer, error) {
	plain, end, err := imagestore.Inflate(r)
	if err != nil {
		return "", nil, err
	}
	defer end()
	h := sha256.New()
	f, size, err := imagestore.Spool(dir, io.TeeReader(plain, h))
	if err != nil {
		return "", nil, err
	}
	d := digest.OfHash(h)
	return d, imagestore.NewSavedLayer(d, f, size), nil
}
