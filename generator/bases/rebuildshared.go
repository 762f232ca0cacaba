package bases

import (
	"context"
	"fmt"
	"os"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
)

// shared makes the content that the deltas of an image over several bases have
// in common (delta/FORMAT.md, "Shared content"), if one of the bases is there.
func (b *Builder) shared(ctx context.Context, rel *Artifact, comp artifact.Component, m payloadMember, c *Contents) error {
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
	var sharedBase delta.Digest
	for _, h := range r.Header().Bases {
		switch {
		case h.Image == delta.SharedBase:
			sharedBase = h.Digest
		case c.have[h.Digest] == nil:
			return nil
		}
	}
	old := delta.WithSharedBase(c.store, sharedBase, base.DiffIDs)
	if err := b.apply(ctx, old, c, r, what, comp.URL); err != nil {
		return err
	}
	made := objects[0]
	return b.Add(c, delta.Image{Name: delta.SharedContent, Objects: []delta.Object{
		{Digest: made.Digest, Size: made.Size, Kind: made.Kind, Open: c.have[made.Digest]},
	}})
}
