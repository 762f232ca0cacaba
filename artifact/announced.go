package artifact

import (
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
)

// This file has what the metadata says about components. It is verified before the payload,
// so it bounds what the payload may cost.

// Component finds a component; ok is false for an artifact that does not name its
// components (the shell reference's).
func (m *Metadata) Component(url string, d image.Digest) (c Component, ok bool) {
	for _, n := range m.Components {
		if n.Digest == d && n.URL == url {
			return n, true
		}
	}
	return c, false
}

// PayloadBytes is the size of an image in the payload, 0 if it is not announced.
func (m *Metadata) PayloadBytes(d image.Digest) int64 {
	for _, n := range m.Components {
		if n.Digest == d {
			return n.PayloadBytes
		}
	}
	return 0
}

// OldImages are the images that have the old content of the delta of an image: its
// bases, and images of this artifact that are loaded already and have a layer that the
// delta omits. others are the further images that are loaded already.
func (m *Metadata) OldImages(url string, d image.Digest, loaded map[image.Digest]bool) (bases, others []Base) {
	c, _ := m.Component(url, d)
	bases = slices.Clone(c.Bases)
	known := map[image.Digest]bool{c.Digest: true}
	for _, b := range bases {
		known[b.Digest] = true
	}
	omitted := map[image.Digest]bool{}
	for _, layer := range c.Layers {
		omitted[layer.DiffID] = layer.Encoding == EncodingOmitted
	}
	for _, o := range m.Components {
		if o.IsFile() || known[o.Digest] || !loaded[o.Digest] {
			continue
		}
		known[o.Digest] = true
		b := Base{URL: o.URL, Digest: o.Digest}
		if slices.ContainsFunc(o.Layers, func(layer Layer) bool { return omitted[layer.DiffID] }) {
			bases = append(bases, b)
		} else {
			others = append(others, b)
		}
	}
	return bases, others
}

// CheckKind returns an ErrPayload if an image in the payload has not the announced format.
func (m *Metadata) CheckKind(info ImageInfo) error {
	for _, n := range m.Components {
		if n.Digest != info.Digest {
			continue
		}
		want := KindFull
		if n.Format == FormatDelta {
			want = KindDelta
		}
		have := info.Kind
		if n.IsFile() && have == KindReferenceDelta {
			have = KindDelta
		}
		if have != want {
			return fmt.Errorf("%w: it is not in the format that the metadata announces, %s", ErrPayload, n.Format)
		}
	}
	return nil
}
