package bases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/tarstore"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// Builder reads artifacts and puts their images together.
type Builder struct {
	Temp string // directory for what is read and made; the caller removes it
	// Tell gets the progress of the work.
	Tell func(stage, what string, done, total int64)

	files []*os.File
}

// Close closes the files of all images. They cannot be read afterwards.
func (b *Builder) Close() {
	for _, f := range b.files {
		f.Close()
	}
}

// local verifies the layers of an image and returns a copy whose layers are
// uncompressed files, which may be read at random.
func (b *Builder) local(ctx context.Context, name string, img *image.Image) (*image.Image, error) {
	return source.Keep(ctx, b.Temp, img, func(done int64) { b.Tell("read", name, done, -1) })
}

// DamagedError reports that the content of an artifact is malformed.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }

func (e *DamagedError) Unwrap() error { return e.Err }

// ErrNotApp is the error for a Mender Artifact without an application.
var ErrNotApp = errors.New("no App Artifact")

// DeltaImage is an image as the encoder takes it: the config, then the layers.
func DeltaImage(name string, img *image.Image) delta.Image {
	d := delta.Image{Name: name, Objects: []delta.Object{{
		Digest: delta.Digest(img.ConfigDigest),
		Size:   int64(len(img.Config)),
		Kind:   delta.Blob,
		Open:   func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(img.Config))), nil },
	}}}
	for _, l := range img.Layers {
		d.Objects = append(d.Objects, delta.Object{Digest: delta.Digest(l.DiffID), Size: l.Size, Kind: delta.Tar, Open: l.Open})
	}
	return d
}

// Contents is old content by digest, for a decoder (store) and to be read (have).
type Contents struct {
	store  *tarstore.Store
	have   map[delta.Digest]func() (io.ReadCloser, error)
	stored map[delta.Digest]bool         // those of have that store has
	Images map[image.Digest]*image.Image // those that are whole, by their configs
}

// NewContents returns empty Contents.
func NewContents() *Contents {
	return &Contents{
		store: tarstore.New(), have: map[delta.Digest]func() (io.ReadCloser, error){}, stored: map[delta.Digest]bool{},
		Images: map[image.Digest]*image.Image{},
	}
}

// Add adds the objects of an image.
func (b *Builder) Add(c *Contents, im delta.Image) error {
	for _, obj := range im.Objects {
		if c.stored[obj.Digest] {
			continue
		}
		c.have[obj.Digest], c.stored[obj.Digest] = obj.Open, true
		ra, err := b.readerAt(obj)
		if err != nil {
			return err
		}
		if err := c.store.Add(obj.Digest, obj.Kind, ra, obj.Size); err != nil {
			return err
		}
	}
	return nil
}

// Open opens an object that is there.
func (c *Contents) Open(d delta.Digest) (io.ReadCloser, error) {
	open := c.have[d]
	if open == nil {
		return nil, fmt.Errorf("%w: %s", delta.ErrNoObject, d)
	}
	return open()
}

// lacks finds an object that a delta needs: it is omitted, and neither old
// content nor the delta has it. ok is false if there is none.
func (c *Contents) lacks(h delta.Header) (obj delta.ObjectInfo, ok bool) {
	for _, obj := range h.Objects {
		if obj.Encoding != delta.Omitted || c.have[obj.Digest] != nil {
			continue
		}
		// it may be one that the delta makes, twice in the image
		made := slices.ContainsFunc(h.Objects, func(o delta.ObjectInfo) bool { return o.Digest == obj.Digest && o.Encoding != delta.Omitted })
		if !made {
			return obj, true
		}
	}
	return obj, false
}

// Apply makes the objects of a delta, as files that are in c.have from then on.
// deltaPath and what name the delta and its result to people.
func (b *Builder) Apply(ctx context.Context, c *Contents, r *decoder.Decoder, deltaPath, what string) error {
	return b.apply(ctx, c.store, c, r, deltaPath, what)
}

// apply is Apply with old content that need not be that of c.
func (b *Builder) apply(ctx context.Context, old delta.Old, c *Contents, r *decoder.Decoder, deltaPath, what string) error {
	if obj, lacks := c.lacks(r.Header()); lacks {
		return fmt.Errorf("%s: the old images lack %s %s", deltaPath, obj.Kind, obj.Digest)
	}
	var done, total int64
	for _, obj := range r.Header().Objects {
		if obj.Encoding != delta.Omitted {
			total += obj.Size
		}
	}
	err := r.Apply(ctx, old, b.Temp, func(obj delta.ObjectInfo) (delta.Sink, error) {
		f, err := os.CreateTemp(b.Temp, "new-*")
		if err != nil {
			return nil, &write.Error{Err: err}
		}
		path := f.Name()
		return &fileSink{File: f, wrote: func(n int) { done += int64(n); b.Tell("apply", what, done, total) }, commit: func() {
			c.have[obj.Digest] = func() (io.ReadCloser, error) { return os.Open(path) }
		}}, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", deltaPath, err)
	}
	return nil
}

// MadeImage is the image that a delta makes, of the objects that are there.
func (c *Contents) MadeImage(h delta.Header) (*image.Image, error) {
	if len(h.Objects) == 0 {
		return nil, errors.New("the delta makes nothing")
	}
	first, err := c.have[h.Objects[0].Digest]()
	if err != nil {
		return nil, err
	}
	defer first.Close()
	config, err := io.ReadAll(io.LimitReader(first, image.MaxConfig+1))
	if err != nil {
		return nil, err
	}
	var layers []image.Layer
	for _, o := range h.Objects[1:] {
		layers = append(layers, image.Layer{DiffID: o.Digest, Size: o.Size, Open: c.have[o.Digest]})
	}
	return image.New(config, layers)
}

// fileSink takes an object into a file.
type fileSink struct {
	*os.File
	wrote  func(int)
	commit func()
}

func (s *fileSink) Write(p []byte) (int, error) {
	n, err := s.File.Write(p)
	s.wrote(n)
	if err != nil {
		return n, &write.Error{Err: err}
	}
	return n, nil
}

func (s *fileSink) Commit() error {
	if err := s.Close(); err != nil {
		return &write.Error{Err: err}
	}
	s.commit()
	return nil
}

func (s *fileSink) Abort(error) { s.Close() }

func (b *Builder) readerAt(o delta.Object) (io.ReaderAt, error) {
	rc, err := o.Open()
	if err != nil {
		return nil, err
	}
	if f, ok := rc.(*os.File); ok {
		b.files = append(b.files, f)
		return f, nil
	}
	defer rc.Close()
	text, err := io.ReadAll(io.LimitReader(rc, image.MaxConfig+1)) // a config: everything else is a file
	if err != nil {
		return nil, err
	}
	return strings.NewReader(string(text)), nil
}
