package generator

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// contents is old content by digest, for a decoder (store) and to be read (have).
type contents struct {
	store  *tarstore.Store
	have   map[delta.Digest]func() (io.ReadCloser, error)
	stored map[delta.Digest]bool         // those of have that store has
	images map[image.Digest]*image.Image // those that are whole, by their configs
}

func newContents() *contents {
	return &contents{
		store: tarstore.New(), have: map[delta.Digest]func() (io.ReadCloser, error){}, stored: map[delta.Digest]bool{},
		images: map[image.Digest]*image.Image{},
	}
}

// add adds the objects of an image.
func (h *byHand) add(c *contents, im delta.Image) error {
	for _, obj := range im.Objects {
		if c.stored[obj.Digest] {
			continue
		}
		c.have[obj.Digest], c.stored[obj.Digest] = obj.Open, true
		ra, err := h.readerAt(obj)
		if err != nil {
			return err
		}
		if err := c.store.Add(obj.Digest, obj.Kind, ra, obj.Size); err != nil {
			return err
		}
	}
	return nil
}

// lacks finds an object that a delta needs: it is omitted, and neither old
// content nor the delta has it. ok is false if there is none.
func (c *contents) lacks(h delta.Header) (obj delta.ObjectInfo, ok bool) {
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

// apply makes the objects of a delta, as files that are in c.have from then on.
// deltaPath and what name the delta and its result to people.
func (h *byHand) apply(c *contents, r *decoder.Decoder, deltaPath, what string) error {
	if obj, lacks := c.lacks(r.Header()); lacks {
		return fmt.Errorf("%s: the old images lack %s %s", deltaPath, obj.Kind, obj.Digest)
	}
	var done, total int64
	for _, obj := range r.Header().Objects {
		if obj.Encoding != delta.Omitted {
			total += obj.Size
		}
	}
	err := r.Apply(h.ctx, c.store, func(obj delta.ObjectInfo) (delta.Sink, error) {
		f, err := os.CreateTemp(h.temp, "new-*")
		if err != nil {
			return nil, &WriteError{err}
		}
		path := f.Name()
		return &fileSink{File: f, wrote: func(n int) { done += int64(n); h.tell("apply", what, done, total) }, commit: func() {
			c.have[obj.Digest] = func() (io.ReadCloser, error) { return os.Open(path) }
		}}, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", deltaPath, err)
	}
	return nil
}

// madeImage is the image that a delta makes, of the objects that are there.
func madeImage(h delta.Header, have map[delta.Digest]func() (io.ReadCloser, error)) (*image.Image, error) {
	if len(h.Objects) == 0 {
		return nil, errors.New("the delta makes nothing")
	}
	first, err := have[h.Objects[0].Digest]()
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
		layers = append(layers, image.Layer{DiffID: o.Digest, Size: o.Size, Open: have[o.Digest]})
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
		return n, &WriteError{err}
	}
	return n, nil
}

func (s *fileSink) Commit() error {
	if err := s.Close(); err != nil {
		return &WriteError{err}
	}
	s.commit()
	return nil
}

func (s *fileSink) Abort(error) { s.Close() }
