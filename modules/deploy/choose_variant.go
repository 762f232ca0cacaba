package deploy

import (
	"context"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/modules/deploy/announced"
	"github.com/mender-app/mender-app/modules/deploy/files"
	"github.com/mender-app/mender-app/modules/deploy/incoming"
	"github.com/mender-app/mender-app/submodules"
)

// choose picks the first variant that fits this device, for each image that the
// artifact carries in several variants. It returns the resolved header: a copy
// of h in which the chosen variants replace these images.
func (t *target) choose(ctx context.Context, h *incoming.Header) (*incoming.Header, error) {
	meta := *h.Meta
	meta.Components = slices.Clone(h.Meta.Components)
	resolved := &incoming.Header{Artifact: h.Artifact, Meta: &meta, Statement: h.Statement, Project: h.Project, Members: map[image.Digest][]string{}}
	have := &baseFinder{target: t}
	chosen := map[image.Digest]int{}
	var temp, memory, engine int64
	for i, c := range meta.Components {
		if c.Format != artifact.FormatVariants {
			continue
		}
		n, ok := chosen[c.Digest]
		if !ok {
			var err error
			if n, err = have.variant(ctx, c); err != nil {
				return nil, err
			}
			v := c.Variants[n]
			chosen[c.Digest], resolved.Members[c.Digest] = n, c.Members(n)
			temp, memory, engine = max(temp, v.Temp), max(memory, v.Memory), engine+v.Engine
			from := "whole"
			if len(v.Bases) > 0 {
				from = v.Bases[0].URL + "@" + v.Bases[0].Digest.String()
			}
			t.e.Log.Info("the image comes in several variants", "component", c.URL, "variant", n+1, "base", from)
		}
		meta.Components[i] = c.As(n)
	}
	if h.Meta.Sizes != nil {
		s := *h.Meta.Sizes
		s.Temp, s.Memory, s.Engine = max(s.Temp, temp), max(s.Memory, memory), s.Engine+engine
		meta.Sizes = &s
	}
	return resolved, nil
}

// baseFinder tells which images the device has.
type baseFinder struct {
	*target
	known map[image.Digest]bool // nil: not asked yet
}

// variant returns the index of the first variant that fits this device.
func (f *baseFinder) variant(ctx context.Context, c artifact.Component) (int, error) {
	var lacking []string
	shared := false
	for i, v := range c.Variants {
		switch {
		case v.Format == artifact.FormatFull:
			return i, nil
		case c.IsFile():
			if files.Has(f.e.Store, f.app, v.Bases[0]) {
				return i, nil
			}
			lacking = append(lacking, v.Bases[0].URL+" ("+v.Bases[0].Digest.String()+")")
			continue
		case v.Shared && f.info.Has(submodules.FeatureDelta) && !f.info.Has(submodules.FeatureShared):
			shared = true
			continue
		}
		missing := ""
		for _, b := range v.Bases {
			ok, err := f.has(ctx, b)
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
	if shared {
		return 0, unfit("sub-module %s cannot apply deltas like those of %s: update it, or install a full artifact", f.r.Orchestrator, c.URL)
	}
	return 0, unfit("%s comes as deltas only, and this device has none of the images that they need, %s: install the full artifact",
		c.URL, strings.Join(slices.Compact(lacking), " or "))
}

// has reports whether the device has an image. It first looks at the application's
// own images (LIST), then asks the engine for this one (VERIFY). Where the delta is
// applied here (see rebuilds), an image that a release has will do: SAVE gives it.
func (f *baseFinder) has(ctx context.Context, b artifact.Base) (bool, error) {
	if !f.info.Has(submodules.FeatureDelta) && files.Has(f.e.Store, f.app, b) {
		return true, nil
	}
	if f.known == nil {
		f.known = map[image.Digest]bool{}
		var list []submodules.Component
		if err := f.call(ctx, submodules.VerbList, f.request(), into(&list, f.o.List)); err != nil {
			return false, unfit("%w", err)
		}
		for _, c := range list {
			f.known[c.Digest] = true
		}
	}
	ok, asked := f.known[b.Digest]
	if asked || !f.info.Has(submodules.FeatureVerify) {
		return ok, nil
	}
	req := f.request()
	req.Components = []submodules.Component{announced.Base(artifact.ComponentImage, b)}
	var problems []string
	if err := f.call(ctx, submodules.VerbVerify, req, into(&problems, f.o.Verify)); err != nil {
		return false, unfit("%w", err)
	}
	ok = len(problems) == 0
	f.known[b.Digest] = ok
	return ok, nil
}
