package artifact

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

// several is a component in three ways.
func several() Component {
	base := func(s string, layers ...image.Digest) Base {
		return Base{URL: "example/web:" + s, Digest: digestOf(s), DiffIDs: layers}
	}
	return Component{
		URL: "example/web:3", Type: ComponentImage, Digest: digestOf("web3"), Platform: "linux/arm64", ConfigSize: 10,
		Layers: []Layer{{digestOf("l1"), 4096, EncodingVariant, 0, 0}, {digestOf("l2"), 8192, EncodingVariant, 0, 0}},
		Format: FormatVariants, PayloadBytes: 100,
		Variants: []Variant{
			{Format: FormatDelta, Bases: []Base{base("1", digestOf("l1"))}, Shared: true, PayloadBytes: 30, Temp: 5, Memory: 6, Engine: 7,
				Layers: []VariantLayer{{EncodingOmitted, 0}, {EncodingDelta, 20}}},
			{Format: FormatDelta, Bases: []Base{base("2")}, PayloadBytes: 30, Layers: []VariantLayer{{EncodingDelta, 8}, {EncodingVerbatim, 22}}},
			{Format: FormatFull, PayloadBytes: 40, Layers: []VariantLayer{{EncodingVerbatim, 4096}, {EncodingVerbatim, 8192}}},
		},
	}
}

func withVariants(c ...Component) *Metadata {
	m := sample()
	m.Components, m.Requires = c, []string{FeatureDelta, FeatureVariants}
	return m
}

func TestVariantsMetadata(t *testing.T) {
	m := withVariants(several())
	further := several()
	further.URL = "example/worker:3"
	m.Components = append(m.Components, further)
	b, err := m.Encode()
	require.NoError(t, err)
	again, _, err := ParseMetadata(b)
	require.NoError(t, err)
	require.Equal(t, m, again)

	c := several()
	one := c.As(0)
	require.Equal(t, FormatDelta, one.Format)
	require.Equal(t, c.Variants[0].Bases, one.Bases)
	require.Equal(t, []Layer{{digestOf("l1"), 4096, EncodingOmitted, 0, 0}, {digestOf("l2"), 8192, EncodingDelta, 20, 0}}, one.Layers)
	require.EqualValues(t, 30, one.PayloadBytes)
	require.NoError(t, withVariants(one).Validate())
	require.Equal(t, []string{"image.shared", "image.1.delta"}, c.Members(0))
	require.Equal(t, []string{"image.2.delta"}, c.Members(1))
	require.Equal(t, []string{"image.img"}, c.Members(2))

	// The last variant may be a delta that needs no base.
	alone := several()
	alone.Variants[2].Format = FormatDelta
	require.NoError(t, withVariants(alone).Validate())
	require.Equal(t, []string{"image.3.delta"}, alone.Members(2))
	alone.Variants = slices.Clone(alone.Variants)
	alone.Variants[2].Content = &Content{}
	require.Equal(t, []string{"image.1.delta"}, alone.Members(2), "a file of its own")

	for name, edit := range map[string]func(c *Component, m *Metadata){
		"no feature":              func(_ *Component, m *Metadata) { m.Requires = []string{FeatureDelta} },
		"none":                    func(c *Component, _ *Metadata) { c.Variants = nil },
		"too many":                func(c *Component, _ *Metadata) { c.Variants = slices.Repeat(c.Variants[:1], maxVariants+1) },
		"bases outside":           func(c *Component, _ *Metadata) { c.Bases = c.Variants[0].Bases },
		"layer encoded outside":   func(c *Component, _ *Metadata) { c.Layers[0].Encoding = EncodingVerbatim },
		"of another format":       func(c *Component, _ *Metadata) { c.Format = FormatDelta },
		"layers missing":          func(c *Component, _ *Metadata) { c.Variants[1].Layers = c.Variants[1].Layers[:1] },
		"variant in a variant":    func(c *Component, _ *Metadata) { c.Variants[1].Format = FormatVariants },
		"unknown encoding":        func(c *Component, _ *Metadata) { c.Variants[1].Layers[0].Encoding = EncodingVariant },
		"full with omitted":       func(c *Component, _ *Metadata) { c.Variants[2].Layers[0].Encoding = EncodingOmitted },
		"full with base":          func(c *Component, _ *Metadata) { c.Variants[2].Bases = c.Variants[0].Bases },
		"full first":              func(c *Component, _ *Metadata) { slices.Reverse(c.Variants) },
		"delta without base":      func(c *Component, _ *Metadata) { c.Variants[1].Bases = nil },
		"shared without layers":   func(c *Component, _ *Metadata) { c.Variants[1].Shared = true },
		"shared full":             func(c *Component, _ *Metadata) { c.Variants[2].Shared = true },
		"base's digest malformed": func(c *Component, _ *Metadata) { c.Variants[0].Bases[0].DiffIDs[0] = "x" },
		"negative size":           func(c *Component, _ *Metadata) { c.Variants[0].Engine = -1 },
	} {
		c := several()
		m := withVariants()
		edit(&c, m)
		m.Components = []Component{c}
		require.ErrorIs(t, m.Validate(), ErrMetadata, name)
	}
}

// parts is the payload of such a component, between two others.
func parts(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewImagesWriter(&buf)
	add := func(info ImageInfo, content string) {
		require.NoError(t, w.Add(info, int64(len(content)), strings.NewReader(content)))
	}
	full := want("", "full", KindFull)
	add(full.info, full.content)
	info := ImageInfo{Digest: digestOf("web3"), URLNew: "example/web:3", URLCurrent: "example/web:3", SumNew: digestOf("web3"), SumCurrent: digestOf("web3")}
	for _, p := range []struct {
		kind    Kind
		variant int
		content string
	}{{KindShared, 0, "what both need, "}, {KindDelta, 1, "over one"}, {KindDelta, 2, "over the second"}, {KindFull, -1, "all of it"}} {
		info.Kind, info.Variant = p.kind, p.variant
		add(info, p.content)
	}
	delta := want("old", "new", KindDelta)
	add(delta.info, delta.content)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func TestVariantsPayload(t *testing.T) {
	b := parts(t)
	for _, c := range []struct {
		members []string
		kind    Kind
		variant int
		content string
	}{
		{[]string{"image.shared", "image.1.delta"}, KindShared, 0, "what both need, over one"},
		{[]string{"image.shared", "image.2.delta"}, KindShared, 0, "what both need, over the second"},
		{[]string{"image.2.delta"}, KindDelta, 2, "over the second"},
		{[]string{"image.img"}, KindFull, -1, "all of it"},
	} {
		for _, reads := range []bool{true, false} {
			var all []got
			o := ReadOptions{Members: func(d image.Digest) []string {
				if d == digestOf("web3") {
					return c.members
				}
				return nil
			}}
			err := ReadImages(bytes.NewReader(b), o, func(info ImageInfo, r io.Reader) error {
				g := got{info: info}
				if reads {
					content, err := io.ReadAll(r)
					if err != nil {
						return err
					}
					g.content = string(content)
				}
				all = append(all, g)
				return nil
			})
			require.NoError(t, err)
			require.Len(t, all, 3)
			require.Equal(t, c.kind, all[1].info.Kind)
			require.Equal(t, c.variant, all[1].info.Variant)
			if reads {
				require.Equal(t, c.content, all[1].content)
			}
		}
	}

	// Each by itself.
	all, err := readImages(b, ReadOptions{})
	require.NoError(t, err)
	var contents []string
	for _, g := range all {
		contents = append(contents, g.content)
	}
	require.Equal(t, []string{all[0].content, "what both need, ", "over one", "over the second", "all of it", all[5].content}, contents)

	// A part that is not there.
	o := ReadOptions{Members: func(image.Digest) []string { return []string{"image.shared", "image.3.delta"} }}
	_, err = readImages(b, o)
	require.ErrorIs(t, err, ErrPayload)
	o.Members = func(image.Digest) []string { return []string{"image.3.delta"} }
	_, err = readImages(b, o)
	require.ErrorIs(t, err, ErrPayload)
	stop := errors.New("stop")
	require.Equal(t, stop, ReadImages(bytes.NewReader(b), ReadOptions{}, func(info ImageInfo, _ io.Reader) error {
		if info.Variant == 2 {
			return stop
		}
		return nil
	}))
}

// Members of variants in another order, twice, or beside what they cannot be
// beside are refused.
func TestVariantsOrder(t *testing.T) {
	texts := shell("", "web", false)[:5]
	other := shell("old", "web", false)[:5]
	e := func(name string) rig.Entry { return rig.Entry{Name: dir("web") + name, Body: "content of " + name} }
	for name, es := range map[string][]rig.Entry{
		"another order":   append(slices.Clone(texts), e("image.2.delta"), e("image.1.delta")),
		"twice":           append(slices.Clone(texts), e("image.1.delta"), e("image.1.delta")),
		"shared late":     append(slices.Clone(texts), e("image.1.delta"), e("image.shared")),
		"after the full":  append(slices.Clone(texts), e("image.img"), e("image.1.delta")),
		"beside a delta":  append(slices.Clone(texts), e("image.1.delta"), e("image.delta")),
		"after a delta":   append(slices.Clone(texts), e("image.delta"), e("image.1.delta")),
		"of a reference":  append(slices.Clone(other), e("image.1.delta")),
		"before texts":    append([]rig.Entry{texts[0], e("image.1.delta")}, texts[1:]...),
		"number too high": append(slices.Clone(texts), e("image.33.delta")),
		"number 0":        append(slices.Clone(texts), e("image.0.delta")),
		"number 01":       append(slices.Clone(texts), e("image.01.delta")),
		"a link":          append(slices.Clone(texts), e("image.1.delta"), rig.Entry{Name: dir("web") + "image.2.delta", Type: tar.TypeSymlink, Link: "x"}),
	} {
		all := append([]rig.Entry{{Name: "images/", Type: tar.TypeDir}}, es...)
		for _, members := range []func(image.Digest) []string{nil, func(image.Digest) []string { return []string{"image.1.delta", "image.2.delta"} }} {
			_, err := readImages(rig.Tar(t, all...), ReadOptions{SpoolDir: t.TempDir(), Members: members})
			require.ErrorIs(t, err, ErrPayload, name)
		}
	}
}
