package inspect

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta/decoder"
)

// ImageDescription is one image of the images payload.
type ImageDescription struct {
	URL      string             `json:"url"`
	Type     string             `json:"type,omitempty"` // of a file; an image has none
	Also     []string           `json:"also,omitempty"` // its further names
	Digest   digest.Digest      `json:"digest"`
	Platform string             `json:"platform,omitempty"`
	Format   string             `json:"format"` // full, delta, variants, reference delta, reference deep delta
	Current  string             `json:"current,omitempty"`
	Bytes    int64              `json:"bytes"` // of image.img or image.delta
	Bases    []artifact.Base    `json:"bases,omitempty"`
	Layers   []LayerDescription `json:"layers,omitempty"`
	// Largest are the largest files of an image that travels whole, at most MaxLargest. Of a
	// delta over nothing they are those of layers that are not omitted.
	Largest []LargeFile `json:"largest_files,omitempty"`
	// Decoding is how long a delta over nothing took to decode here; 0 if none was.
	Decoding time.Duration `json:"-"`
	// Variants are the ways an image of the format variants travels in, and
	// SharedBytes those that several of them need. Bytes is all of them together.
	Variants    []VariantDescription `json:"variants,omitempty"`
	SharedBytes int64                `json:"shared_bytes,omitempty"`
}

// VariantDescription is one way of several in which an image travels.
type VariantDescription struct {
	Format string             `json:"format"`
	Bases  []artifact.Base    `json:"bases,omitempty"`
	Shared bool               `json:"shared,omitempty"` // it needs the shared content
	Bytes  int64              `json:"bytes"`            // of its own member
	Temp   int64              `json:"temp"`
	Memory int64              `json:"memory"`
	Engine int64              `json:"engine"`
	Decode int64              `json:"decode,omitempty"`
	Layers []LayerDescription `json:"layers,omitempty"`
}

// LayerDescription is one layer, the base first.
type LayerDescription struct {
	DiffID   digest.Digest `json:"diff_id"`
	Size     int64         `json:"size"` // uncompressed; -1 if the artifact does not say
	Encoding string        `json:"encoding"`
	Bytes    int64         `json:"bytes"` // in the payload; -1 if the artifact does not say
}

// variant reads one member of an image that travels in several ways.
func (i *inspection) variant(ctx context.Context, info artifact.ImageInfo, content io.Reader) error {
	var d *ImageDescription
	if n := len(i.Images); n > 0 && i.Images[n-1].Digest == info.Digest {
		d = &i.Images[n-1]
	} else {
		i.Images = append(i.Images, ImageDescription{URL: info.URLNew, Digest: info.Digest, Format: string(artifact.FormatVariants)})
		d = &i.Images[len(i.Images)-1]
		for _, c := range i.meta.Components {
			if c.Digest != info.Digest {
				continue
			}
			if c.URL != info.URLNew {
				d.Also = append(d.Also, c.URL)
			}
			d.Platform = c.Platform
		}
		d.Type = i.fileType(info)
	}
	d.Bytes += info.Size
	if info.Kind == artifact.KindShared {
		d.SharedBytes = info.Size
		_, err := decoder.New(content)
		return err
	}
	var own ImageDescription
	v := VariantDescription{Format: string(artifact.FormatFull), Bytes: info.Size}
	var err error
	if info.Kind == artifact.KindFull {
		err = own.whole(i.fileType(info), info, content)
	} else {
		v.Format = string(artifact.FormatDelta)
		err = i.delta(ctx, &own, info.Size, content)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", info.URLNew, err)
	}
	v.Layers = own.Layers
	if own.Largest != nil {
		d.Largest = own.Largest
	}
	for _, c := range i.meta.Components {
		n := len(d.Variants)
		if c.Digest != info.Digest || n >= len(c.Variants) {
			continue
		}
		m := c.Variants[n]
		v.Bases, v.Shared, v.Temp, v.Memory, v.Engine, v.Decode = m.Bases, m.Shared, m.Temp, m.Memory, m.Engine, m.Decode
		for k := range v.Layers {
			if k < len(m.Layers) {
				v.Layers[k].Bytes = m.Layers[k].Bytes
			}
		}
	}
	d.Variants = append(d.Variants, v)
	return nil
}

func (i *inspection) image(ctx context.Context, info artifact.ImageInfo, content io.Reader) error {
	if info.Kind == artifact.KindShared || info.Variant != 0 {
		return i.variant(ctx, info, content)
	}
	d := ImageDescription{URL: info.URLNew, Type: i.fileType(info), Digest: info.Digest, Bytes: info.Size}
	if info.URLCurrent != info.URLNew || info.SumCurrent != "" && info.SumCurrent != info.SumNew {
		d.Current = info.URLCurrent
	}
	var err error
	switch info.Kind {
	case artifact.KindFull:
		d.Format = string(artifact.FormatFull)
		err = d.whole(i.fileType(info), info, content)
	case artifact.KindDelta:
		d.Format = string(artifact.FormatDelta)
		err = i.delta(ctx, &d, info.Size, content)
	case artifact.KindReferenceDelta:
		d.Format = "reference delta"
	case artifact.KindReferenceDeepDelta:
		d.Format = "reference deep delta"
	}
	if err != nil {
		return fmt.Errorf("%s: %w", info.URLNew, err)
	}
	for _, c := range i.meta.Components {
		if c.Digest != info.Digest {
			continue
		}
		if c.URL != info.URLNew {
			d.Also = append(d.Also, c.URL)
		}
		d.Platform, d.Bases = c.Platform, c.Bases
		for n := range d.Layers {
			if n < len(c.Layers) && c.Layers[n].DiffID == d.Layers[n].DiffID {
				d.Layers[n].Bytes = c.Layers[n].Bytes
			}
		}
	}
	i.Images = append(i.Images, d)
	return nil
}

// fileType is the type of a component of the payload that is a file; "" for images.
func (i *inspection) fileType(info artifact.ImageInfo) string {
	for _, c := range i.meta.Components {
		if c.Digest == info.Digest && c.IsFile() {
			return c.Type
		}
	}
	return ""
}

// whole reads a whole image, or a file of the type.
func (d *ImageDescription) whole(fileType string, info artifact.ImageInfo, r io.Reader) error {
	if fileType == "" {
		return d.full(info, r)
	}
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return err
	}
	if got := digest.OfHash(h); got != info.Digest {
		return fmt.Errorf("the file is %s, and should be %s", got, info.Digest)
	}
	return nil
}

// full reads the whole image: every layer is compared with its diffID.
func (d *ImageDescription) full(info artifact.ImageInfo, r io.Reader) error {
	var files largest
	images, err := image.ReadStream(r, image.Limits{}, image.Handler{Layer: files.layer})
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return errors.New("there is no image in its archive")
	}
	img := images[0]
	for _, other := range images {
		if other.ConfigDigest == info.Digest {
			img = other
		}
	}
	d.Platform, d.Largest = img.Platform.String(), files.of(&img)
	for n, l := range img.Layers {
		e := LayerDescription{DiffID: l.DiffID, Size: l.Size, Encoding: string(artifact.EncodingVerbatim), Bytes: l.Size}
		if n < len(img.Members) && img.Members[n] == "" {
			e.Encoding, e.Bytes = string(artifact.EncodingOmitted), 0
		}
		d.Layers = append(d.Layers, e)
	}
	return nil
}
