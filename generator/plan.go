package generator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
)

// Plan is what the artifact will hold. Before it is executed the encodings of
// the layers that are not omitted, and all payload bytes, are not known yet.
type Plan struct {
	Version    string              `json:"version"` // of the metadata
	Components []PlannedComponent  `json:"components"`
	Depends    map[string][]string `json:"depends,omitempty"` // added because of the bases: the values that serve
}

// PlannedComponent is one image.
type PlannedComponent struct {
	URL       string          `json:"url"`
	Source    string          `json:"source"`
	Base      string          `json:"base,omitempty"` // name of the base on the device; of several, the first
	Digest    image.Digest    `json:"digest"`
	Platform  string          `json:"platform"`
	Format    artifact.Format `json:"format"`
	Unchanged bool            `json:"unchanged,omitempty"` // it is its base: no content travels
	SameAs    string          `json:"same_as,omitempty"`   // a further name of the image with this one, whose content it shares
	Layers    []PlannedLayer  `json:"layers"`
	// Whole is about how many bytes the image takes where it is sent whole and
	// compressed; 0 if not looked at.
	Whole int64 `json:"whole_bytes,omitempty"`
	// Sent is how many bytes of the artifact are the image's; 0 in a dry run.
	Sent int64 `json:"sent_bytes,omitempty"`
	// Variants are the ways the image travels in, where those are several. The
	// device takes one of them.
	Variants []PlannedVariant `json:"variants,omitempty"`
	// Shared is how many of the bytes sent several variants need, once in the
	// artifact. Known when it is made.
	Shared int64 `json:"shared_bytes,omitempty"`
}

// PlannedVariant is one of several ways in which an image travels.
type PlannedVariant struct {
	Base   string          `json:"base,omitempty"` // name of the base; none of a whole image
	Digest image.Digest    `json:"base_digest,omitempty"`
	From   string          `json:"base_source,omitempty"`
	Format artifact.Format `json:"format"`
	Bytes  int64           `json:"bytes,omitempty"` // of its own, in the artifact
}

// PlannedLayer is one layer, the base first.
type PlannedLayer struct {
	DiffID  image.Digest `json:"diff_id"`
	Size    int64        `json:"size"`
	Omitted bool         `json:"omitted"`
	In      string       `json:"in,omitempty"` // the image it is taken from where it is omitted
}

// planned is an image that was found, on its way into the artifact.
type planned struct {
	*source.Found
	bases  []*source.Found // of which a device has one; none: no delta, or one that needs none
	given  []*source.Found // bases as they were asked for: the same image may be of several versions
	format artifact.Format
	same   *planned // the image is in the artifact already, under this name; nil: it is not
}

func (p *planned) digest() image.Digest { return p.Image.ConfigDigest }

// current is what the image replaces: its base, or itself.
func (p *planned) current() *source.Found {
	if base := p.base(); base != nil {
		return base
	}
	return p.Found
}

// base is the base of an image that has but one; nil if it has none or several.
func (p *planned) base() *source.Found {
	if len(p.bases) != 1 || p.format == artifact.FormatVariants {
		return nil
	}
	return p.bases[0]
}

// find opens every image: those asked for, or those the manifests use.
func (g *generation) find(ctx context.Context, opener *source.Opener, used *manifests.Found) error {
	if g.SkipImages {
		return nil
	}
	pairs := g.Images
	if len(pairs) == 0 {
		var err error
		if pairs, err = g.fromManifests(used); err != nil {
			return err
		}
	}
	byPair := map[string]*planned{}
	for _, p := range pairs {
		key := p.New.String() + "=" + p.New.URL
		img := byPair[key]
		if img == nil {
			next, err := opener.Open(ctx, p.New, "")
			if err != nil {
				return err
			}
			img = &planned{Found: next}
			g.warnings = append(g.warnings, next.Warnings...)
			g.images = append(g.images, img)
			byPair[key] = img
		}
		if p.Base == nil {
			continue
		}
		base, err := opener.Open(ctx, *p.Base, img.URL)
		if err != nil {
			return fmt.Errorf("base of %s: %w", img.URL, err)
		}
		g.warnings = append(g.warnings, base.Warnings...)
		img.given = append(img.given, base)
		img.bases = addImage(img.bases, base)
	}
	return g.distinct()
}

// fromManifests names the images the manifests use, less those that are on the
// device. They are registry references, as for the orchestrator itself.
func (g *generation) fromManifests(used *manifests.Found) ([]Pair, error) {
	var pairs []Pair
	seen := map[string]bool{}
	for _, u := range used.Uses {
		n := source.Normal(u.Image)
		if seen[n] || g.onDevice(u.Image) {
			continue
		}
		seen[n] = true
		spec, err := source.Parse(u.Image)
		if err == nil {
			err = source.CheckURL(u.Image)
		}
		if err != nil {
			e := &manifests.Error{Place: u.Place, Text: err.Error()}
			var s *source.Error
			if errors.As(err, &s) {
				e.Hint = s.Hint
			}
			return nil, &ManifestError{Dir: g.ManifestsDir, Err: e}
		}
		pairs = append(pairs, Pair{New: spec})
	}
	if len(pairs) == 0 && len(g.OnDevice) == 0 {
		return nil, &ManifestError{Dir: g.ManifestsDir, Err: &manifests.Error{Place: manifests.Place{File: "."}, Text: "no images are used", Hint: "name them with --image, or use --skip-images"}}
	}
	return pairs, nil
}

func (g *generation) onDevice(url string) bool {
	return slices.ContainsFunc(g.OnDevice, func(d string) bool { return source.Normal(d) == source.Normal(url) })
}

// distinct refuses two contents for one name, and finds the contents with
// several names: they are shipped once, under the first.
func (g *generation) distinct() error {
	byName := map[string]*planned{}
	for _, img := range g.images {
		n := source.Normal(img.URL)
		other := byName[n]
		if other == nil {
			byName[n] = img
			continue
		}
		e := &UsageError{Text: fmt.Sprintf("%s is given twice, by %s and %s", img.URL, other.From, img.From), Hint: "one name is one image: leave one out, or give it another name with SOURCE=NAME:TAG"}
		return e
	}
	byDigest := map[image.Digest]*planned{}
	for _, img := range g.images {
		if other := byDigest[img.digest()]; other != nil {
			img.same = other
		} else {
			byDigest[img.digest()] = img
		}
	}
	return nil
}

// plan decides how every image travels, and checks that the manifests find all
// they need.
func (g *generation) plan(ctx context.Context, used *manifests.Found) error {
	if err := g.checkUses(used); err != nil {
		return err
	}
	delta := g.DeepDelta
	several := g.Fallback
	for _, img := range g.images {
		delta = delta || len(img.bases) > 0
		several = several || len(img.bases) > 1
	}
	g.result.Version = artifact.VersionReference
	if delta && len(g.images) > 0 {
		g.result.Version = artifact.VersionCurrent
	}
	for _, img := range g.images {
		img.format = artifact.FormatFull
		if delta {
			img.format = artifact.FormatDelta
		}
		if n := len(img.bases); n > 1 || n == 1 && g.Fallback {
			img.format = artifact.FormatVariants
		}
	}
	g.apart = several
	whole, err := g.readLayers(ctx, delta)
	if err != nil {
		return err
	}
	for i, img := range g.images {
		g.result.Components = append(g.result.Components, g.planOne(i, img, whole))
	}
	return g.autoDepends()
}

func (g *generation) planOne(i int, img *planned, whole map[image.Digest]int64) PlannedComponent {
	c := PlannedComponent{
		URL: img.URL, Source: img.From.String(), Digest: img.digest(), Platform: img.Image.Platform.String(), Format: img.format,
		Whole: int64(len(img.Image.Config)),
	}
	if len(img.bases) > 0 {
		c.Base = img.bases[0].URL
	}
	if base := img.base(); base != nil {
		c.Unchanged = base.Image.ConfigDigest == img.digest()
	}
	if img.format == artifact.FormatVariants {
		for _, b := range img.bases {
			c.Variants = append(c.Variants, PlannedVariant{Base: b.URL, Digest: b.Image.ConfigDigest, From: b.From.String(), Format: artifact.FormatDelta})
		}
		if g.Fallback {
			c.Variants = append(c.Variants, PlannedVariant{Format: artifact.FormatFull})
		}
	}
	if img.same != nil {
		c.SameAs, c.Whole = img.same.URL, 0
		for _, l := range img.Image.Layers {
			c.Layers = append(c.Layers, PlannedLayer{DiffID: l.DiffID, Size: l.Size, Omitted: true, In: c.SameAs})
		}
		return c
	}
	old := g.old(i)
	for _, l := range img.Image.Layers {
		p := PlannedLayer{DiffID: l.DiffID, Size: l.Size}
		if img.format == artifact.FormatDelta {
			if in := holder(old, l.DiffID); in != nil {
				p.Omitted, p.In = true, in.URL
			}
		}
		c.Layers = append(c.Layers, p)
		c.Whole += whole[l.DiffID]
	}
	return c
}

// old lists the images whose content is on the device when image i is loaded:
// its own base, the other bases, and the images before it in the artifact.
func (g *generation) old(i int) []*source.Found {
	list := g.bases(i)
	for _, img := range g.images[:i] {
		list = addImage(list, img.Found)
	}
	return list
}

// bases lists the images that a device must have before the artifact comes,
// that of image i first. Where a device may have one of several, or none, each
// image goes by its own.
func (g *generation) bases(i int) []*source.Found {
	list := addImage(nil, g.images[i].base())
	for _, img := range g.images {
		if !g.apart {
			list = addImage(list, img.base())
		}
	}
	return list
}

// addImage appends an image that is not in the list yet.
func addImage(list []*source.Found, f *source.Found) []*source.Found {
	if f == nil || slices.ContainsFunc(list, func(have *source.Found) bool { return have.Image.ConfigDigest == f.Image.ConfigDigest }) {
		return list
	}
	return append(list, f)
}

// holder finds the first image that has the layer.
func holder(list []*source.Found, diffID image.Digest) *source.Found {
	for _, f := range list {
		if slices.Contains(f.Image.DiffIDs, diffID) {
			return f
		}
	}
	return nil
}

// checkUses refuses manifests that use what the device will not have, and
// warns of images that nobody uses.
func (g *generation) checkUses(used *manifests.Found) error {
	if used == nil || g.SkipImages {
		return nil
	}
	have := map[string]bool{}
	var names []string
	for _, img := range g.images {
		have[source.Normal(img.URL)] = true
		names = append(names, img.URL)
	}
	var lacking []manifests.Use
	needed := map[string]bool{}
	for _, u := range used.Uses {
		n := source.Normal(u.Image)
		needed[n] = true
		if !have[n] && !g.onDevice(u.Image) {
			lacking = append(lacking, u)
		}
	}
	if len(lacking) > 0 {
		return &NotShippedError{Dir: g.ManifestsDir, Uses: lacking, Have: names}
	}
	for _, img := range g.images {
		if !needed[source.Normal(img.URL)] {
			g.warn("%s is shipped, but the manifests do not use it", img.URL)
		}
	}
	return nil
}

// autoDepends makes Mender refuse a delta on a device that runs another
// version of the application than the one the bases are from, where they say.
func (g *generation) autoDepends() error {
	if g.NoAutoDepends || g.result.Version != artifact.VersionCurrent {
		return nil
	}
	fs := g.Software.Filesystem
	if fs == "" {
		fs = "rootfs-image"
	}
	key := fs + "." + g.Software.Name + ".version"
	if _, given := g.Depends[key]; given {
		return nil
	}
	if g.Fallback {
		return nil // it serves every device
	}
	// A version serves if every image has a base of it.
	var versions, all []string
	unknown, first := false, true
	for _, img := range g.images {
		if len(img.bases) == 0 {
			continue
		}
		var have []string
		for _, b := range img.given {
			if v := b.Provides[key]; v != "" {
				have = append(have, v)
			}
		}
		all = append(all, have...)
		if len(have) < len(img.given) {
			unknown = true
			continue
		}
		if first {
			versions, first = have, false
			continue
		}
		versions = slices.DeleteFunc(versions, func(v string) bool { return !slices.Contains(have, v) })
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	switch {
	case first && unknown:
		g.warn("the version that the bases belong to is not known: with --depends %s:VERSION Mender keeps the delta from devices that have another one", key)
	case len(versions) == 0 && len(all) > 0:
		slices.Sort(all)
		return &UsageError{Text: "the bases come from several versions of the application: " + strings.Join(slices.Compact(all), ", "),
			Hint: "a device has one of them: give every image a base of each, or say which serve with --depends " + key + ":VERSION or --no-depends"}
	case len(versions) > 0:
		g.result.Depends = map[string][]string{key: versions}
	}
	return nil
}
