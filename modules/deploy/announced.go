package deploy

import (
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file tells what an artifact's metadata says about its components. The
// metadata is verified before the payload, so it bounds what the payload may cost.

// announcedComponent finds a component of a release in the metadata; ok is false for an
// artifact that does not name its components (the shell reference's).
func announcedComponent(m *artifact.Metadata, c store.Component) (found artifact.Component, ok bool) {
	for _, n := range m.Components {
		if n.Digest == c.Digest && n.URL == c.URL {
			return n, true
		}
	}
	return found, false
}

// payloadBytes is the size of an image in the payload, 0 if it is not announced.
func payloadBytes(m *artifact.Metadata, d image.Digest) int64 {
	for _, n := range m.Components {
		if n.Digest == d {
			return n.PayloadBytes
		}
	}
	return 0
}

// announcedBases are the components that the delta of a component needs.
func announcedBases(m *artifact.Metadata, c store.Component) (list []submodules.Component) {
	n, _ := announcedComponent(m, c)
	for _, b := range n.Bases {
		list = append(list, baseComponent(n.Type, b))
	}
	return list
}

// baseComponent is a base as sub-modules get it. typ is the type of the component that the
// delta makes, and so the base's.
func baseComponent(typ string, b artifact.Base) submodules.Component {
	return submodules.Component{Type: typ, URL: b.URL, Digest: b.Digest, DiffIDs: b.DiffIDs}
}

// oldImages are the images that have the old content of the delta of an image: its
// bases, and images of this artifact that are loaded already and have a layer that the
// delta omits. others are the further images that are loaded already.
func oldImages(m *artifact.Metadata, c store.Component, loaded map[image.Digest]bool) (bases, others []artifact.Base) {
	n, _ := announcedComponent(m, c)
	bases = slices.Clone(n.Bases)
	known := map[image.Digest]bool{n.Digest: true}
	for _, b := range bases {
		known[b.Digest] = true
	}
	omitted := map[image.Digest]bool{}
	for _, layer := range n.Layers {
		omitted[layer.DiffID] = layer.Encoding == artifact.EncodingOmitted
	}
	for _, o := range m.Components {
		if o.IsFile() || known[o.Digest] || !loaded[o.Digest] {
			continue
		}
		known[o.Digest] = true
		b := artifact.Base{URL: o.URL, Digest: o.Digest}
		if slices.ContainsFunc(o.Layers, func(layer artifact.Layer) bool { return omitted[layer.DiffID] }) {
			bases = append(bases, b)
		} else {
			others = append(others, b)
		}
	}
	return bases, others
}

// announcedContent is what is announced of the content of an image; nil for a file, which is
// compared with its digest, and if nothing is announced.
func announcedContent(m *artifact.Metadata, c store.Component) *submodules.Announced {
	n, ok := announcedComponent(m, c)
	switch {
	case c.Type != artifact.ComponentImage, !ok && m.Sizes == nil:
		return nil
	case !ok:
		return &submodules.Announced{Temp: m.Sizes.Temp, Engine: m.Sizes.Engine}
	}
	a := &submodules.Announced{Format: string(n.Format), ConfigSize: n.ConfigSize}
	if m.Sizes != nil {
		a.Temp = m.Sizes.Temp
	}
	for _, layer := range n.Layers {
		a.Layers = append(a.Layers, submodules.AnnouncedLayer{Size: layer.Size, Unpacked: layer.Unpacked, Encoding: string(layer.Encoding)})
	}
	return a
}

// checkKind compares the form of an image in the payload with the announced format.
func checkKind(m *artifact.Metadata, info artifact.ImageInfo) error {
	for _, n := range m.Components {
		if n.Digest != info.Digest {
			continue
		}
		want := artifact.KindFull
		if n.Format == artifact.FormatDelta {
			want = artifact.KindDelta
		}
		have := info.Kind
		if n.IsFile() && have == artifact.KindReferenceDelta {
			have = artifact.KindDelta
		}
		if have != want {
			return fmt.Errorf("%w: it is not in the format that the metadata announces, %s", artifact.ErrPayload, n.Format)
		}
	}
	return nil
}

// announcedNames finds the components for an image of the payload: one for each of its names, with
// the name in the payload first. base is the image that its delta needs; byDigest: the
// sub-module finds images by their digests.
func announcedNames(m *artifact.Metadata, info artifact.ImageInfo, byDigest bool) (names []store.Component, base string, err error) {
	if info.URLCurrent != info.URLNew {
		base = info.URLCurrent
	}
	found := false
	for _, c := range m.Components {
		if c.Digest != info.Digest {
			continue
		}
		if c.URL != info.URLNew {
			names = append(names, releaseComponent(c))
			continue
		}
		found = true
		names = slices.Insert(names, 0, releaseComponent(c))
		if len(c.Bases) > 0 {
			base = c.Bases[0].URL + "@" + c.Bases[0].Digest.String()
		}
	}
	if found {
		return names, base, nil
	}
	if len(m.Components) > 0 || m.Statement != nil {
		return nil, "", fmt.Errorf("%w: %s (%s) is not announced in the metadata", artifact.ErrPayload, info.URLNew, info.Digest)
	}
	if !slices.Contains(m.Images, info.Digest.Hex()) {
		return nil, "", fmt.Errorf("%w: %s (%s) is not among the images that the metadata names", artifact.ErrPayload, info.URLNew, info.Digest)
	}
	// The shell reference's metadata does not name components, and the
	// reference never checked the sum of the current image. Check it.
	if base != "" && info.SumCurrent != "" && byDigest {
		base += "@" + info.SumCurrent.String()
	}
	return []store.Component{{Type: artifact.ComponentImage, URL: info.URLNew, Digest: info.Digest}}, base, nil
}
