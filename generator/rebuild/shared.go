package rebuild

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
)

// shared makes the content that the deltas of an image over several bases have
// in common (delta/FORMAT.md, "Shared content"), if one of the bases is there.
func (b *Builder) shared(ctx context.Context, rel *Release, comp artifact.Component, m releaseMember, c *Contents) error {
	var base *image.Image
	for _, v := range comp.Variants {
		if v.Shared && len(v.Bases) > 0 && base == nil {
			base = c.Images[v.Bases[0].Digest]
		}
	}
	if base == nil {
		return nil
	}
	f, err := os.Open(m.file)
	if err != nil {
		return err
	}
	defer f.Close()
	what := rel.Path + ": " + comp.URL
	r, err := decoder.New(f)
	if err != nil {
		return &DamagedError{Err: fmt.Errorf("%s: %w", what, err)}
	}
	objects := r.Header().Objects
	if len(objects) != 1 || objects[0].Kind != delta.Tar || objects[0].Encoding == delta.Omitted {
		return &DamagedError{Err: fmt.Errorf("%s: %w: shared content is one tar", what, delta.ErrFormat)}
	}
	if c.stored[objects[0].Digest] {
		return nil
	}
	old := &merged{Old: c.store, layers: base.DiffIDs}
	for _, h := range r.Header().Bases {
		switch {
		case h.Image == delta.SharedBase:
			old.digest = h.Digest
		case c.have[h.Digest] == nil:
			return nil
		}
	}
	if err := b.apply(ctx, old, c, r, what, comp.URL); err != nil {
		return err
	}
	made := objects[0]
	return b.Add(c, delta.Image{Name: delta.SharedContent, Objects: []delta.Object{
		{Digest: made.Digest, Size: made.Size, Kind: made.Kind, Open: c.have[made.Digest]},
	}})
}

// merged presents all layers of an image as one object.
type merged struct {
	delta.Old
	digest delta.Digest
	layers []image.Digest // base first
}

// OpenFile finds a file in the topmost layer that has it.
func (m *merged) OpenFile(ctx context.Context, in delta.Digest, path string) (delta.File, error) {
	if in != m.digest || path == "" {
		return m.Old.OpenFile(ctx, in, path)
	}
	for i := len(m.layers) - 1; i >= 0; i-- {
		f, err := m.Old.OpenFile(ctx, m.layers[i], path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return f, err
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// Headers refuses: shared content is made of the content of files alone.
func (m *merged) Headers(ctx context.Context, in delta.Digest) (delta.HeaderReader, error) {
	if in == m.digest {
		return nil, fmt.Errorf("%w: shared content with headers of its base", delta.ErrFormat)
	}
	return m.Old.Headers(ctx, in)
}
