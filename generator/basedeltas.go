package generator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// overBases encodes an image against each of its bases: once with independent
// deltas, and once with their common content in a delta of its own. It returns the
// smaller result.
func (m *deltaMaker) overBases(ctx context.Context, img *plannedImage) (*imageDeltas, error) {
	apart, err := m.overEach(ctx, img, nil)
	changed := slices.DeleteFunc(slices.Clone(img.bases), func(b *source.Found) bool { return b.Image.ConfigDigest == img.digest() })
	if err != nil || len(changed) < 2 { // the delta over the image itself has no content
		return apart, err
	}
	together, err := m.overShared(ctx, img)
	if err != nil {
		apart.remove()
		return nil, err
	}
	if together == nil {
		return apart, nil
	}
	if together.total() >= apart.total() {
		together.remove()
		return apart, nil
	}
	apart.remove()
	return together, nil
}

// overEach makes one delta for each base. All devices have content too.
func (m *deltaMaker) overEach(ctx context.Context, img *plannedImage, content []delta.Image) (*imageDeltas, error) {
	b := &imageDeltas{}
	next := bases.DeltaImage(img.URL, img.Image)
	for _, base := range img.bases {
		olds := append([]delta.Image{bases.DeltaImage(base.URL, base.Image)}, content...)
		d, err := m.encode(ctx, img.URL+" over "+base.From.String(), false, append(olds, deltaImages(img.known)...), next)
		if err != nil {
			b.remove()
			return nil, fmt.Errorf("over %s: %w", base.From, err)
		}
		b.deltas = append(b.deltas, d)
	}
	return b, nil
}

// overShared is overEach with the common content of the deltas in a delta of its
// own. It returns nil if they have no common content.
func (m *deltaMaker) overShared(ctx context.Context, img *plannedImage) (*imageDeltas, error) {
	olds := make([]*image.Image, len(img.bases))
	for i, b := range img.bases {
		olds[i] = b.Image
	}
	content, err := bases.FindShared(ctx, m.temp, img.Image, olds)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) { // it reads and writes in the temporary directory only
			err = &write.Error{Err: err}
		}
		return nil, err
	}
	if content == nil {
		return nil, nil
	}
	defer content.Remove()
	common, err := m.encode(ctx, img.URL+", what the bases share", false, append([]delta.Image{content.Base}, deltaImages(img.known)...), content.New)
	if err != nil {
		return nil, err
	}
	b, err := m.overEach(ctx, img, []delta.Image{content.New})
	if err != nil {
		common.remove()
		return nil, err
	}
	b.shared, b.temp = common, content.Size
	return b, nil
}
