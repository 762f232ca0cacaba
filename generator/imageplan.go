package generator

import (
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/sbom"
	"github.com/mender-app/mender-app/generator/source"
)

// Plan is what the artifact will contain. The sizes of deltas, and how layers that
// are not omitted are encoded, are known only after it was executed.
type Plan struct {
	Version    string              `json:"version"` // of the metadata
	Components []PlannedComponent  `json:"components"`
	Files      []PlannedFile       `json:"files,omitempty"`
	Depends    map[string][]string `json:"depends,omitempty"` // added because of the bases: the values that will do
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
	SameAs    string          `json:"same_as,omitempty"`   // name of an earlier component with the same content
	Layers    []PlannedLayer  `json:"layers"`
	// Whole is about how many bytes the image takes if it is sent whole and
	// compressed; 0 if not measured.
	Whole int64 `json:"whole_bytes,omitempty"`
	// Variants are the forms in which the image is sent, if there are several.
	// The device takes one of them.
	Variants []PlannedVariant `json:"variants,omitempty"`
}

// PlannedVariant is one of several forms in which an image is sent.
type PlannedVariant struct {
	Base   string          `json:"base,omitempty"` // name of the base; empty for a whole image
	Digest image.Digest    `json:"base_digest,omitempty"`
	From   string          `json:"base_source,omitempty"`
	Format artifact.Format `json:"format"`
}

// PlannedLayer is one layer, the base first.
type PlannedLayer struct {
	DiffID  image.Digest `json:"diff_id"`
	Size    int64        `json:"size"`
	Omitted bool         `json:"omitted"`
	In      string       `json:"in,omitempty"` // the image it is taken from if it is omitted
	// Zstd says that zstd compresses the layer, because a device has it in less time so.
	Zstd bool `json:"zstd,omitempty"`
}

// plan is a Plan with what its execution needs.
type plan struct {
	Plan
	images   []plannedImage                  // of the components, in the same order
	files    []plannedFile                   // of the files, in the same order
	whole    artifact.Format                 // of images without a base
	layers   source.Layers                   // what reading them found out
	packages map[image.Digest][]sbom.Package // of each image; nil if nobody asked
}

// plannedImage is one image of the plan.
type plannedImage struct {
	*source.Found
	format artifact.Format
	whole  bool            // of FormatVariants: it travels whole too
	tags   []string        // all names it gets on the device, with tags
	bases  []*source.Found // a device has one of them; none: no delta, or one without a base
	sameAs int             // index of an earlier image with the same content; -1: none
	// known are the images whose content is on every device when this one is
	// loaded: bases, then earlier images of the artifact.
	known []*source.Found
	// required are those of known that a device must have before the artifact
	// comes.
	required []*source.Found
}

func (p *plannedImage) digest() image.Digest { return p.Image.ConfigDigest }

// archive is the image as it travels whole, with all its names.
func (p *plannedImage) archive() image.ArchiveSpec {
	return image.ArchiveSpec{Image: p.Image, RepoTags: p.tags}
}

// base is the base of an image that is sent in exactly one form.
func (p *plannedImage) base() *source.Found {
	if len(p.bases) != 1 || p.format == artifact.FormatVariants {
		return nil
	}
	return p.bases[0]
}

// current is what the image replaces: its base, or itself.
func (p *plannedImage) current() *source.Found {
	if base := p.base(); base != nil {
		return base
	}
	return p.Found
}

// plan decides how every image is sent.
func (r *run) plan(images []foundImage, ls source.Layers) (*plan, error) {
	p := &plan{Plan: Plan{Version: artifact.VersionReference}, images: make([]plannedImage, len(images)), whole: artifact.FormatFull, layers: ls}
	if r.Images.Coding == Coded {
		p.whole = artifact.FormatDelta
	}
	if r.Images.makesDeltas(images) {
		p.Version = artifact.VersionCurrent
	}
	// alternatives: devices differ in the bases they have, so that one image's
	// base says nothing about another's.
	alternatives := r.Images.Fallback
	r.warnOfClassicStore(images, ls)
	first := map[image.Digest]int{}
	for i := range images {
		img := &p.images[i]
		*img = plannedImage{Found: images[i].Found, bases: images[i].bases(), format: p.whole, sameAs: -1, tags: []string{tagged(images[i].URL)}}
		n := len(img.bases)
		img.whole = n > 0 && (r.Images.Fallback || images[i].whole)
		switch {
		case n > 1 || img.whole:
			img.format = artifact.FormatVariants
		case n > 0 || r.Images.sharesLayers(images, i):
			img.format = artifact.FormatDelta
		}
		alternatives = alternatives || img.format == artifact.FormatVariants
		if same, ok := first[img.digest()]; ok {
			img.sameAs = same
			p.images[same].tags = append(p.images[same].tags, img.tags...)
		} else {
			first[img.digest()] = i
		}
	}
	for i := range p.images {
		p.known(i, alternatives)
		p.Components = append(p.Components, p.component(i, ls))
	}
	var err error
	p.Depends, err = r.autoDepends(images, p.Version)
	return p, err
}

// warnOfClassicStore names images that only a part of the devices can load.
func (r *run) warnOfClassicStore(images []foundImage, ls source.Layers) {
	if r.Application.Orchestrator != Compose {
		return
	}
	for _, img := range images {
		if n := len(img.Image.Layers); n > source.MaxClassicLayers {
			r.warn("%s: Docker's classic image store (overlay2) takes %d layers, and it has %d. Build it with fewer", img.URL, source.MaxClassicLayers, n)
		}
		for _, l := range img.Image.Layers {
			if why := ls[l.DiffID].Classic; why != "" {
				r.warn("%s: Docker's classic image store (overlay2) does not take layer %s: %s. The containerd image store takes it. Build the layer without it, as docker build does", img.URL, l.DiffID, why)
			}
		}
	}
}

// checkReader refuses what the reader that the artifact is for would refuse.
func (r *run) checkReader(p *plan) error {
	if r.Artifact.Reader != ReaderShellModule {
		return nil
	}
	for _, c := range []struct {
		asked        bool
		needs, leave string
	}{
		{r.policy != nil, "a policy", "leave app.toml out"},
		{len(r.Application.EncryptTo) > 0, "encrypted secrets", "leave --encrypt-secrets-to out"},
		{p.Version != artifact.VersionReference, "deltas", "name no CURRENT, and no --base or --bases-from"},
	} {
		if c.asked {
			return &UsageError{Text: "--for " + ReaderShellModule + ": it cannot read " + c.needs, Hint: c.leave}
		}
	}
	return nil
}

// known finds out what content is on a device when image i is loaded.
func (p *plan) known(i int, alternatives bool) {
	img := &p.images[i]
	img.required = addImage(nil, img.base())
	for n := range p.images {
		if !alternatives {
			img.required = addImage(img.required, p.images[n].base())
		}
	}
	img.known = slices.Clone(img.required)
	for n := range i {
		img.known = addImage(img.known, p.images[n].Found)
	}
}

// component describes image i.
func (p *plan) component(i int, ls source.Layers) PlannedComponent {
	img := &p.images[i]
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
		if img.whole {
			c.Variants = append(c.Variants, PlannedVariant{Format: p.whole})
		}
	}
	if img.sameAs >= 0 {
		c.SameAs, c.Whole = p.images[img.sameAs].URL, 0
		for _, l := range img.Image.Layers {
			c.Layers = append(c.Layers, PlannedLayer{DiffID: l.DiffID, Size: l.Size, Omitted: true, In: c.SameAs})
		}
		return c
	}
	for _, l := range img.Image.Layers {
		planned := PlannedLayer{DiffID: l.DiffID, Size: l.Size}
		if img.format == artifact.FormatDelta {
			if in := holder(img.known, l.DiffID); in != nil {
				planned.Omitted, planned.In = true, in.URL
			}
		}
		c.Layers = append(c.Layers, planned)
		c.Whole += ls[l.DiffID].Compressed
	}
	return c
}

// coded notes which layers of deltas zstd compresses.
func (p *plan) coded(made *encoded) {
	for i, m := range made.images {
		if m == nil || p.images[i].format != artifact.FormatDelta {
			continue
		}
		for _, o := range m.deltas[0].report.Objects {
			if o.Index > 0 { // 0 is the config
				p.Components[i].Layers[o.Index-1].Zstd = o.Packed
			}
		}
	}
}

// engineGrowth returns by how many bytes the disk of a device's engine grows: the
// size of the configs and the unpacked layers that are not there yet, each counted
// once. The variants of an image announce their own growth.
func (p *plan) engineGrowth() int64 {
	var n int64
	seen := map[image.Digest]bool{}
	for i, c := range p.Components {
		if c.Unchanged || c.SameAs != "" || c.Format == artifact.FormatVariants {
			continue
		}
		n += int64(len(p.images[i].Image.Config))
		for _, l := range c.Layers {
			if !l.Omitted && !seen[l.DiffID] {
				seen[l.DiffID] = true
				n += max(l.Size, p.layers[l.DiffID].Unpacked)
			}
		}
	}
	return n
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

// tagged adds the default tag to a name without one.
func tagged(url string) string {
	if strings.Contains(url[strings.LastIndexByte(url, '/')+1:], ":") {
		return url
	}
	return url + ":latest"
}
