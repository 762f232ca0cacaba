package deploy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// variants is the metadata of an artifact with one image over two bases, whole
// as well if asked for, and under two names.
func variants(t *testing.T, full bool) *artifact.Metadata {
	t.Helper()
	base := func(n string) []artifact.Base {
		return []artifact.Base{{URL: "web:" + n, Digest: digestOf("", "web "+n), DiffIDs: []image.Digest{digestOf("", "layer "+n)}}}
	}
	c := artifact.Component{
		URL: "web:3", Type: artifact.ComponentImage, Digest: digestOf("", "web 3"), Platform: "linux/amd64",
		Layers: []artifact.Layer{{DiffID: digestOf("", "layer 3"), Size: 100, Encoding: artifact.EncodingVariant}},
		Format: artifact.FormatVariants, PayloadBytes: 60,
	}
	layers := func(e artifact.Encoding) []artifact.VariantLayer {
		return []artifact.VariantLayer{{Encoding: e, Bytes: 10}}
	}
	c.Variants = []artifact.Variant{
		{Format: artifact.FormatDelta, Bases: base("1"), Shared: true, Layers: layers(artifact.EncodingDelta), PayloadBytes: 10, Temp: 1000, Memory: 5, Engine: 10},
		{Format: artifact.FormatDelta, Bases: base("2"), Layers: layers(artifact.EncodingDelta), PayloadBytes: 20, Temp: 2000, Memory: 6, Engine: 20},
	}
	if full {
		c.Variants = append(c.Variants, artifact.Variant{Format: artifact.FormatFull, Layers: layers(artifact.EncodingVerbatim), PayloadBytes: 30, Engine: 100})
	}
	further := c
	further.URL = "worker:3"
	m := &artifact.Metadata{
		Version: artifact.VersionCurrent, ApplicationName: "shop", Orchestrator: "fake", Platform: "linux/amd64",
		Components: []artifact.Component{c, further}, Sizes: &artifact.Sizes{Temp: 1500, Engine: 7},
		Requires: []string{artifact.FeatureDelta, artifact.FeatureVariants},
	}
	require.NoError(t, m.Validate())
	return m
}

// The device takes the first variant whose bases it has, and what it takes is
// what its space is checked for.
func TestChoosesVariant(t *testing.T) {
	all := newWorld().features
	all = append(all, submodules.FeatureShared)
	for name, c := range map[string]struct {
		features []string
		has      []string // of the application
		engine   []string // of the engine alone
		full     bool
		coded    bool     // the full one is a delta over nothing
		takes    []string // members
		base     string
		temp     int64
		grows    int64
		says     string
	}{
		"the first":                       {features: all, has: []string{"web 1"}, takes: []string{"image.shared", "image.1.delta"}, base: "web:1", temp: 1500, grows: 17},
		"the second":                      {features: all, has: []string{"web 2"}, takes: []string{"image.2.delta"}, base: "web:2", temp: 2000, grows: 27},
		"both":                            {features: all, has: []string{"web 2", "web 1"}, full: true, takes: []string{"image.shared", "image.1.delta"}, base: "web:1", temp: 1500, grows: 17},
		"of the engine":                   {features: all, engine: []string{"web 2"}, takes: []string{"image.2.delta"}, base: "web:2", temp: 2000, grows: 27},
		"neither":                         {features: all, full: true, takes: []string{"image.img"}, temp: 1500, grows: 107},
		"neither, and over nothing":       {features: all, full: true, coded: true, takes: []string{"image.3.delta"}, temp: 1500, grows: 107},
		"neither, and no full one":        {features: all, says: "none of the images that they need, web:1 (" + digestOf("", "web 1").String() + ") or web:2"},
		"nothing shared with this one":    {features: newWorld().features, has: []string{"web 2", "web 1"}, takes: []string{"image.2.delta"}, base: "web:2", temp: 2000, grows: 27},
		"only shared, and not with it":    {features: newWorld().features, has: []string{"web 1"}, says: "cannot apply deltas like those of web:3"},
		"applied here":                    {features: []string{submodules.FeatureStage}, has: []string{"web 1"}, full: true, takes: []string{"image.shared", "image.1.delta"}, base: "web:1", temp: 1500, grows: 17},
		"applied here, and none is there": {features: []string{submodules.FeatureStage}, says: "none of the images that they need"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.w.refs["shop"] = map[digest.Digest]bool{}
			for _, content := range c.has {
				g.w.refs["shop"][digestOf("", content)] = true
			}
			for _, content := range c.engine {
				g.w.content[digestOf("", content)] = "whole"
			}
			e := g.engine()
			h := &header{Meta: variants(t, c.full)}
			if c.coded {
				h.Meta.Components[0].Variants[2].Format = artifact.FormatDelta // both names have these
			}
			info := submodules.Info{Protocol: submodules.Protocol, Features: c.features}
			before := *h.Meta
			before.Components = slices.Clone(h.Meta.Components)
			sizes := *h.Meta.Sizes
			call := &target{e: e, app: h.Meta.ApplicationName, r: h.Release(), sub: play(g.w), info: info}
			resolved, err := call.oldContent().choose(t.Context(), h)
			require.Equal(t, before, *h.Meta, "the header it was given stays as it is")
			require.Equal(t, sizes, *h.Meta.Sizes)
			if c.says != "" {
				require.ErrorIs(t, err, ErrUnfit)
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			require.Equal(t, map[image.Digest][]string{digestOf("", "web 3"): c.takes}, resolved.Members)
			for _, m := range resolved.Meta.Components {
				require.Empty(t, m.Variants)
				require.NotEqual(t, artifact.FormatVariants, m.Format)
				if c.base == "" {
					require.Empty(t, m.Bases)
				} else {
					require.Equal(t, c.base, m.Bases[0].URL)
				}
			}
			require.Equal(t, c.temp, resolved.Meta.Sizes.Temp)
			require.Equal(t, c.grows, resolved.Meta.Sizes.Engine, "an image of two names grows it once")
		})
	}
}
