package generator

import (
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/source"
)

// describe lists the components of the artifact, as its metadata names them, and what
// they take on a device. It writes nothing.
func describe(p *plan, made *encoded, platform image.Platform) (list []artifact.Component, sizes artifact.Sizes, err error) {
	for i := range p.images {
		img := &p.images[i]
		if img.sameAs >= 0 {
			c := list[img.sameAs]
			c.URL = img.URL
			list = append(list, c)
			continue
		}
		c, err := img.describe(made.images[i], &sizes)
		if err != nil {
			return nil, sizes, fmt.Errorf("%s: %w", img.URL, err)
		}
		for n := range c.Layers {
			c.Layers[n].Unpacked = p.layers[c.Layers[n].DiffID].Unpacked
		}
		list = append(list, c)
	}
	for i := range p.files {
		f := &p.files[i]
		if f.sameAs >= 0 {
			c := list[len(p.images)+f.sameAs]
			c.URL = f.URL
			list = append(list, c)
			continue
		}
		list = append(list, f.describe(made.files[i], platform, &sizes))
	}
	sizes.Engine += p.engineGrowth()
	return list, sizes, nil
}

// describe is the component of an image. It adds to sizes what the image takes, unless
// its variants say that.
func (img *plannedImage) describe(made *imageDeltas, sizes *artifact.Sizes) (c artifact.Component, err error) {
	c = artifact.Component{
		URL: img.URL, Type: artifact.ComponentImage, Digest: img.digest(), Platform: img.Image.Platform.String(),
		ConfigSize: int64(len(img.Image.Config)), Format: img.format,
	}
	switch img.format {
	case artifact.FormatVariants:
		for _, l := range img.Image.Layers {
			c.Layers = append(c.Layers, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVariant})
		}
		return c, img.describeVariants(made, &c)
	case artifact.FormatDelta:
		d := made.deltas[0]
		c.PayloadBytes, c.Bases = d.size(), usedBases(d.report, img.required)
		for _, o := range d.report.Objects {
			if o.Index == 0 { // the config
				continue
			}
			c.Layers = append(c.Layers, artifact.Layer{DiffID: o.Digest, Size: o.Size, Encoding: artifact.Encoding(o.Encoding), Bytes: o.Total()})
		}
		sizes.Temp = max(sizes.Temp, d.report.Header.Temp)
		sizes.Memory = max(sizes.Memory, d.report.Header.Memory)
		sizes.Decode += d.decode()
		return c, nil
	}
	for _, l := range img.Image.Layers {
		c.Layers = append(c.Layers, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVerbatim, Bytes: l.Size})
	}
	c.PayloadBytes, err = image.ArchiveSize(img.archive())
	return c, err
}

// describeVariants adds the variants of an image to its component.
func (img *plannedImage) describeVariants(made *imageDeltas, c *artifact.Component) error {
	if made.shared != nil {
		c.PayloadBytes = made.shared.size()
	}
	for n, d := range made.deltas {
		c.Variants = append(c.Variants, made.variant(img, n))
		c.PayloadBytes += d.size()
	}
	if !img.whole {
		return nil
	}
	v := artifact.Variant{Format: artifact.FormatFull, Engine: int64(len(img.Image.Config))}
	if made.whole != nil {
		v = made.whole.variant(img)
	} else {
		var err error
		if v.PayloadBytes, err = image.ArchiveSize(img.archive()); err != nil {
			return err
		}
		for _, l := range img.Image.Layers {
			v.Layers = append(v.Layers, artifact.VariantLayer{Encoding: artifact.EncodingVerbatim, Bytes: l.Size})
			v.Engine += l.Size
		}
	}
	c.Variants = append(c.Variants, v)
	c.PayloadBytes += v.PayloadBytes
	return nil
}

// usedBases lists those of the required images that the delta takes content
// from: it reads their content, or omits a layer because they have it.
func usedBases(report *encoder.Report, required []*source.Found) []artifact.Base {
	needed := map[*source.Found]bool{}
	need := func(d delta.Digest) {
		for _, f := range required {
			if f.Image.ConfigDigest == d || slices.Contains(f.Image.DiffIDs, d) {
				needed[f] = true
				return
			}
		}
	}
	for _, b := range report.Header.Bases {
		need(b.Digest)
	}
	for _, o := range report.Header.Objects {
		if o.Encoding == delta.Omitted {
			need(o.Digest)
		}
	}
	var list []artifact.Base
	for _, f := range required {
		if needed[f] {
			list = append(list, artifact.Base{URL: f.URL, Digest: f.Image.ConfigDigest})
		}
	}
	return list
}

// variant describes the delta over base n.
func (b *imageDeltas) variant(img *plannedImage, n int) artifact.Variant {
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
	return DescribeDelta(d.report, int64(len(img.Image.Config)))
}

// DescribeDelta describes the delta of an image, as the variants in an artifact's metadata
// do, but for what it builds on. config is the size of the image's config.
func DescribeDelta(report *encoder.Report, config int64) artifact.Variant {
	v := artifact.Variant{
		Format: artifact.FormatDelta, PayloadBytes: report.Size, Engine: config,
		Temp: report.Header.Temp, Memory: report.Header.Memory, Decode: report.Work.Instructions(),
	}
	for _, o := range report.Objects {
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
