package deploy

import (
	"context"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// choose picks for each image that travels in several ways the first one that
// serves this device, and puts it into the header in the image's place.
func (e *Engine) choose(ctx context.Context, h *header, o Orchestrator, info submodules.Info) error {
	have := &baseFinder{e: e, o: o, info: info, m: h.meta}
	taken := map[image.Digest]int{}
	var temp, memory, engine int64
	h.members = map[image.Digest][]string{}
	for i, c := range h.meta.Components {
		if c.Format != artifact.FormatVariants {
			continue
		}
		n, ok := taken[c.Digest]
		if !ok {
			var err error
			if n, err = have.variant(ctx, c); err != nil {
				return err
			}
			v := c.Variants[n]
			taken[c.Digest], h.members[c.Digest] = n, c.Members(n)
			temp, memory, engine = max(temp, v.Temp), max(memory, v.Memory), engine+v.Engine
			from := "whole"
			if len(v.Bases) > 0 {
				from = v.Bases[0].URL + "@" + v.Bases[0].Digest.String()
			}
			e.Log.Info("the image comes in several ways", "component", c.URL, "variant", n+1, "base", from)
		}
		h.meta.Components[i] = c.As(n)
	}
	if s := h.meta.Sizes; s != nil {
		s.Temp, s.Memory, s.Engine = max(s.Temp, temp), max(s.Memory, memory), s.Engine+engine
	}
	return nil
}

// baseFinder finds out which images the device has.
type baseFinder struct {
	e    *Engine
	o    Orchestrator
	info submodules.Info
	m    *artifact.Metadata

	known map[string]bool // by digest; nil: not asked yet
}

// variant returns the number of the first variant that serves.
func (f *baseFinder) variant(ctx context.Context, c artifact.Component) (int, error) {
	var lacking []string
	shared := false
	for i, v := range c.Variants {
		switch {
		case v.Format == artifact.FormatFull:
			return i, nil
		case !f.info.Has(submodules.FeatureDelta):
			continue
		case v.Shared && !f.info.Has(submodules.FeatureShared):
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
	if len(lacking) == 0 || shared {
		return 0, unfit("sub-module %s cannot apply deltas like those of %s: update it, or install a full artifact", f.m.Orchestrator, c.URL)
	}
	return 0, unfit("%s comes as deltas only, and this device has none of the images that they need, %s: install the full artifact",
		c.URL, strings.Join(slices.Compact(lacking), " or "))
}

// has reports whether the device has an image: the application, or else the
// engine, of which a sub-module tells only whether it has what is asked for.
func (f *baseFinder) has(ctx context.Context, b artifact.Base) (bool, error) {
	req := submodules.Request{App: f.m.ApplicationName, Platform: f.m.Platform, Env: f.m.Env}
	if f.known == nil {
		f.known = map[string]bool{}
		err := f.e.call(ctx, submodules.VerbList, callTimeout, func(ctx context.Context, tmp string) error {
			req.TempDir = tmp
			list, err := f.o.List(ctx, req)
			for _, c := range list {
				f.known[c.Digest] = true
			}
			return err
		})
		if err != nil {
			return false, unfit("%w", err)
		}
	}
	ok, asked := f.known[b.Digest.String()]
	if asked || !f.info.Has(submodules.FeatureVerify) {
		return ok, nil
	}
	req.Components = []submodules.Component{baseOf(b)}
	err := f.e.call(ctx, submodules.VerbVerify, callTimeout, func(ctx context.Context, tmp string) error {
		req.TempDir = tmp
		problems, err := f.o.Verify(ctx, req)
		ok = len(problems) == 0
		return err
	})
	if err != nil {
		return false, unfit("%w", err)
	}
	f.known[b.Digest.String()] = ok
	return ok, nil
}
