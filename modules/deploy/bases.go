package deploy

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// This file finds which old content a device has, for the deltas of an artifact:
// which variant of an image fits, and whether a delta can be applied.

// oldContent is what a device has that the deltas of an artifact may need.
type oldContent struct {
	*target
	known  map[image.Digest]bool // images, and whether the device has them; nil: not asked yet
	loaded map[image.Digest]bool // what staged artifacts have loaded; nil: not asked yet
}

// oldContent looks for what the artifact's deltas need.
func (t *target) oldContent() *oldContent { return &oldContent{target: t} }

// listed asks the sub-module for the application's images.
func (d *oldContent) listed(ctx context.Context) ([]submodules.Component, error) {
	return d.client().List(ctx, d.request())
}

// lacking asks the sub-module what images lack.
func (d *oldContent) lacking(ctx context.Context, images []submodules.Component) ([]string, error) {
	req := d.request()
	req.Components = images
	return d.client().Verify(ctx, req)
}

// choose picks the first variant that fits this device, for each image that the
// artifact carries in several variants. It returns the resolved header: a copy
// of h in which the chosen variants replace these images.
func (d *oldContent) choose(ctx context.Context, h *header) (*header, error) {
	meta := *h.Meta
	meta.Components = slices.Clone(h.Meta.Components)
	resolved := &header{Artifact: h.Artifact, Provides: h.Provides, Meta: &meta, Statement: h.Statement, Project: h.Project, Members: map[image.Digest][]string{}, Content: map[image.Digest]artifact.Content{}}
	chosen := map[image.Digest]int{}
	var temp, memory, engine, decode, content int64
	for i, c := range meta.Components {
		if c.Format != artifact.FormatVariants {
			continue
		}
		n, ok := chosen[c.Digest]
		if !ok {
			var err error
			if n, err = d.variant(ctx, c); err != nil {
				return nil, err
			}
			v := c.Variants[n]
			chosen[c.Digest], resolved.Members[c.Digest] = n, c.Members(n)
			temp, memory, engine, decode = max(temp, v.Temp), max(memory, v.Memory), engine+v.Engine, decode+v.Decode
			if f := v.Content; f != nil && !d.isLoaded(c) {
				resolved.Content[c.Digest] = *f
				content = max(content, f.Size) // one at a time
			}
			from := "whole"
			if len(v.Bases) > 0 {
				from = v.Bases[0].URL + "@" + v.Bases[0].Digest.String()
			}
			d.e.Log.Info("the image comes in several variants", "component", c.URL, "variant", n+1, "base", from)
		}
		meta.Components[i] = c.As(n)
	}
	if h.Meta.Sizes != nil {
		s := *h.Meta.Sizes
		s.Temp, s.Memory, s.Engine, s.Decode = max(s.Temp, temp)+content, max(s.Memory, memory), s.Engine+engine, s.Decode+decode
		meta.Sizes = &s
	}
	return resolved, nil
}

// variant returns the index of the first variant that fits this device.
func (d *oldContent) variant(ctx context.Context, c artifact.Component) (int, error) {
	var lacking []string
	shared := false
	for i, v := range c.Variants {
		switch {
		case v.Format == artifact.FormatFull:
			return i, nil
		case c.IsFile():
			if hasFile(d.e.Store, d.app, v.Bases[0]) {
				return i, nil
			}
			lacking = append(lacking, v.Bases[0].URL+" ("+v.Bases[0].Digest.String()+")")
			continue
		case v.Shared && d.info.Has(submodules.FeatureDelta) && !d.info.Has(submodules.FeatureShared):
			shared = true
			continue
		}
		missing := ""
		for _, b := range v.Bases {
			ok, err := d.has(ctx, b)
			if err != nil {
				return 0, err
			}
			if !ok {
				missing = b.URL + " (" + b.Digest.String() + ")"
				break
			}
		}
		if missing == "" {
			return i, nil
		}
		lacking = append(lacking, missing)
	}
	if d.isLoaded(c) {
		return 0, nil // nothing of it will be read
	}
	if shared {
		return 0, unfit("sub-module %s cannot apply deltas like those of %s: update it, or install a full artifact", d.r.Orchestrator, c.URL)
	}
	return 0, unfit("%s comes as deltas only, and this device has none of the images that they need, %s: install the full artifact",
		c.URL, strings.Join(slices.Compact(lacking), " or "))
}

// has reports whether the device has an image. It first looks at the application's
// own images (LIST), then asks the engine for this one (VERIFY). Where the delta is
// applied here (see rebuilds), an image that a release has will do: SAVE gives it.
func (d *oldContent) has(ctx context.Context, b artifact.Base) (bool, error) {
	if !d.info.Has(submodules.FeatureDelta) && hasFile(d.e.Store, d.app, b) {
		return true, nil
	}
	if d.known == nil {
		d.known = map[image.Digest]bool{}
		list, err := d.listed(ctx)
		if err != nil {
			return false, unfit("%w", err)
		}
		for _, c := range list {
			d.known[c.Digest] = true
		}
	}
	ok, asked := d.known[b.Digest]
	if asked || !d.info.Has(submodules.FeatureVerify) {
		return ok, nil
	}
	problems, err := d.lacking(ctx, []submodules.Component{baseComponent(artifact.ComponentImage, b)})
	if err != nil {
		return false, unfit("%w", err)
	}
	ok = len(problems) == 0
	d.known[b.Digest] = ok
	return ok, nil
}

// isLoaded reports whether an image is loaded of a staged artifact (store.LoadRecord). The
// sub-module reads nothing of it then.
func (d *oldContent) isLoaded(c artifact.Component) bool {
	if c.IsFile() || !d.info.Has(submodules.FeatureDelta) {
		return false
	}
	if d.loaded == nil {
		d.loaded = d.e.Store.LoadedDigests(d.app, d.r.Orchestrator)
	}
	return d.loaded[c.Digest]
}

// check makes sure that the device has the images that the deltas need. One that is
// loaded already (store.LoadRecord) needs none.
func (d *oldContent) check(ctx context.Context, m *artifact.Metadata) error {
	missing := map[image.Digest]submodules.Component{}
	for _, c := range m.Components {
		if c.Format != artifact.FormatDelta || d.isLoaded(c) {
			continue
		}
		if c.IsFile() {
			if b := c.Bases[0]; !hasFile(d.e.Store, d.app, b) {
				return unfit("the delta of %s needs %s (%s), which this device does not have: install the full artifact", c.URL, b.URL, b.Digest)
			}
			continue
		}
		for _, b := range c.Bases {
			if !d.info.Has(submodules.FeatureDelta) && hasFile(d.e.Store, d.app, b) {
				continue // SAVE gives it
			}
			missing[b.Digest] = submodules.Component{Type: artifact.ComponentImage, URL: b.URL, Digest: b.Digest}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	list, err := d.listed(ctx)
	if err != nil {
		return unfit("%w", err)
	}
	for _, c := range list {
		delete(missing, c.Digest)
	}
	switch {
	case len(missing) == 0:
		return nil
	case !d.info.Has(submodules.FeatureVerify) && d.info.Has(submodules.FeatureDelta):
		return nil // LOAD finds out
	case !d.info.Has(submodules.FeatureVerify):
		c := missing[slices.Sorted(maps.Keys(missing))[0]]
		return unfit("the delta needs %s (%s), which this device does not have: install the full artifact", c.URL, c.Digest)
	}
	// The list names the application's own components: the engine may have others.
	problems, err := d.lacking(ctx, slices.Collect(maps.Values(missing)))
	if err != nil {
		return unfit("%w", err)
	}
	if len(problems) > 0 {
		return unfit("the delta needs an image that this device does not have (%s): install the full artifact", problems[0])
	}
	return nil
}
