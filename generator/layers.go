package generator

import (
	"context"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/source"
)

// withLayers is a copy of f whose layers were read.
func withLayers(f *source.Found, ls source.Layers) *source.Found {
	c := *f
	c.Image = ls.Of(f.Image)
	return &c
}

// readLayers reads every layer of the images and their bases once, and verifies
// it; one that an earlier run has read is only read when it is needed. It keeps the
// uncompressed layers in the temporary directory: a layer is decompressed once, and deltas
// read at random. For deltas it measures what new layers take compressed. It returns
// the images with what it found out.
func (r *run) readLayers(ctx context.Context, images []foundImage) ([]foundImage, source.Layers, error) {
	var all []*image.Image
	isNew := map[image.Digest]bool{}
	for _, img := range images {
		all = append(all, img.Image)
		for _, d := range img.Image.DiffIDs {
			isNew[d] = true
		}
	}
	for _, img := range images {
		for _, b := range img.named {
			all = append(all, b.Image)
		}
	}
	reader := source.LayerReader{Dir: r.temp, Measure: isNew, Cache: r.cache}
	if !r.Images.makesDeltas(images) {
		reader.Measure = nil
	}
	reader.Progress = func(done int64) { r.tell("read", "layers", done, -1) }
	ls, err := reader.Read(ctx, all)
	if err != nil {
		return nil, nil, err
	}
	for _, img := range all {
		r.noCache(r.cache.KeepConfig(img))
	}
	out := make([]foundImage, len(images))
	for i, img := range images {
		out[i].Found, out[i].whole = withLayers(img.Found, ls), img.whole
		for _, b := range img.named {
			out[i].named = append(out[i].named, withLayers(b, ls))
		}
	}
	return out, ls, nil
}

// makesDeltas reports whether any image is sent as a delta.
func (o *Images) makesDeltas(images []foundImage) bool {
	delta := o.Coding == Coded
	for i, img := range images {
		delta = delta || len(img.named) > 0 || o.sharesLayers(images, i)
	}
	return delta && len(images) > 0
}

// sharesLayers reports whether an image without a base is sent as a delta because an
// earlier one has some of its layers, and a quick one.
func (o *Images) sharesLayers(images []foundImage, i int) bool {
	img := images[i].Image
	if o.Coding != Fast || len(images[i].named) > 0 {
		return false
	}
	return slices.ContainsFunc(images[:i], func(other foundImage) bool {
		return other.digest() != images[i].digest() && slices.ContainsFunc(img.DiffIDs, func(d image.Digest) bool {
			return slices.Contains(other.Image.DiffIDs, d)
		})
	})
}
