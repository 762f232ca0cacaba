package deploy

import (
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file tells the store and sub-modules what an artifact's metadata says about its
// components.

// announcedBases are the components that the delta of a component needs.
func announcedBases(m *artifact.Metadata, c store.Component) (list []submodules.Component) {
	n, _ := m.Component(c.URL, c.Digest)
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

// announcedContent is what is announced of the content of an image; nil for a file, which is
// compared with its digest, and if nothing is announced.
func announcedContent(m *artifact.Metadata, c store.Component) *submodules.Announced {
	n, ok := m.Component(c.URL, c.Digest)
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
