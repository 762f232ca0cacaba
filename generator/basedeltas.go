package generator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/bases"
)

// baseDeltas is one image in several deltas, one for each of its bases.
type baseDeltas struct {
	deltas []*encodedDelta
	// shared makes the content that the deltas have in common; nil if they have
	// none. temp is the unpacked size of that content, in bytes.
	shared *encodedDelta
	temp   int64
}

// total is how many bytes it takes in the artifact.
func (b *baseDeltas) total() (n int64) {
	if b.shared != nil {
		n = b.shared.size()
	}
	for _, d := range b.deltas {
		n += d.size()
	}
	return n
}

func (b *baseDeltas) remove() {
	b.shared.remove()
	for _, d := range b.deltas {
		d.remove()
	}
}

// overBases encodes an image against each of its bases: once with independent
// deltas, and once with their common content in a delta of its own. It returns the
// smaller result.
func (r *run) overBases(ctx context.Context, img *plannedImage) (*baseDeltas, error) {
	apart, err := r.overEach(ctx, img, nil)
	if err != nil || len(img.bases) < 2 {
		return apart, err
	}
	together, err := r.overShared(ctx, img)
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
func (r *run) overEach(ctx context.Context, img *plannedImage, content []delta.Image) (*baseDeltas, error) {
	b := &baseDeltas{}
	next := bases.DeltaImage(img.URL, img.Image)
	for _, base := range img.bases {
		olds := append([]delta.Image{bases.DeltaImage(base.URL, base.Image)}, content...)
		d, err := r.encode(ctx, img.URL+" over "+base.From.String(), append(olds, deltaImages(img.known)...), next)
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
func (r *run) overShared(ctx context.Context, img *plannedImage) (*baseDeltas, error) {
	olds := make([]*image.Image, len(img.bases))
	for i, b := range img.bases {
		olds[i] = b.Image
	}
	content, err := bases.FindShared(ctx, r.temp, img.Image, olds)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) { // it reads and writes in the temporary directory only
			err = &WriteError{Err: err}
		}
		return nil, err
	}
	if content == nil {
		return nil, nil
	}
	defer content.Remove()
	common, err := r.encode(ctx, img.URL+", what the bases share", append([]delta.Image{content.Base}, deltaImages(img.known)...), content.New)
	if err != nil {
		return nil, err
	}
	b, err := r.overEach(ctx, img, []delta.Image{content.New})
	if err != nil {
		common.remove()
		return nil, err
	}
	b.shared, b.temp = common, content.Size
	return b, nil
}

// variants packs an image in several variants.
func (pack *imagesPacker) variants(ctx context.Context, i int, img *plannedImage, info artifact.ImageInfo, c *artifact.Component) error {
	for _, l := range img.Image.Layers {
		c.Layers = append(c.Layers, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVariant})
	}
	made, err := pack.overBases(ctx, img)
	if err != nil {
		return err
	}
	defer made.remove()
	if made.shared != nil {
		c.PayloadBytes += made.shared.size()
		info.Kind = artifact.KindShared
		if err := pack.addDelta(entry{image: i, variant: -1, shared: true}, info, made.shared); err != nil {
			return err
		}
	}
	for n, d := range made.deltas {
		c.Variants = append(c.Variants, made.variant(img, n))
		c.PayloadBytes += d.size()
		info.Kind, info.Variant = artifact.KindDelta, n+1
		if err := pack.addDelta(entry{image: i, variant: n}, info, d); err != nil {
			return err
		}
	}
	if !img.whole {
		return nil
	}
	v, err := pack.wholeVariant(ctx, i, img, info, len(made.deltas))
	if err != nil {
		return err
	}
	c.Variants = append(c.Variants, v)
	c.PayloadBytes += v.PayloadBytes
	return nil
}

// wholeVariant packs an image as its variant n, the last, which needs no base.
func (pack *imagesPacker) wholeVariant(ctx context.Context, i int, img *plannedImage, info artifact.ImageInfo, n int) (v artifact.Variant, err error) {
	e := entry{image: i, variant: n}
	if pack.Images.DeepDelta {
		d, err := pack.encode(ctx, img.URL+", whole", deltaImages(img.known), bases.DeltaImage(img.URL, img.Image))
		if err != nil {
			return v, err
		}
		defer d.remove()
		info.Kind, info.Variant = artifact.KindDelta, n+1
		return d.variant(img), pack.addDelta(e, info, d)
	}
	info.Variant = -1
	size, layers, err := pack.full(ctx, e, img, info)
	v = artifact.Variant{Format: artifact.FormatFull, PayloadBytes: size, Engine: int64(len(img.Image.Config))}
	for _, l := range layers {
		v.Layers = append(v.Layers, artifact.VariantLayer{Encoding: l.Encoding, Bytes: l.Bytes})
		v.Engine += l.Size
	}
	return v, err
}

// variant describes the delta over base n.
func (b *baseDeltas) variant(img *plannedImage, n int) artifact.Variant {
	v, base := b.deltas[n].variant(img), img.bases[n]
	v.Bases = []artifact.Base{{URL: base.URL, Digest: base.Image.ConfigDigest}}
	if b.shared != nil {
		v.Shared = true
		v.PayloadBytes += b.shared.size()
		v.Bases[0].DiffIDs = base.Image.DiffIDs
		v.Temp = b.temp + max(v.Temp, b.shared.report.Header.Temp)
		v.Memory = max(v.Memory, b.shared.report.Header.Memory)
		v.Decode += b.shared.decode()
	}
	return v
}

// variant describes the delta of an image, but for what it builds on.
func (d *encodedDelta) variant(img *plannedImage) artifact.Variant {
	v := artifact.Variant{
		Format: artifact.FormatDelta, PayloadBytes: d.size(), Engine: int64(len(img.Image.Config)),
		Temp: d.report.Header.Temp, Memory: d.report.Header.Memory, Decode: d.decode(),
	}
	for _, o := range d.report.Objects {
		if o.Index == 0 { // the config
			continue
		}
		v.Layers = append(v.Layers, artifact.VariantLayer{Encoding: artifact.Encoding(o.Encoding), Bytes: o.Total()})
		if o.Encoding != delta.Omitted {
			v.Engine += o.Size
		}
	}
	return v
}
