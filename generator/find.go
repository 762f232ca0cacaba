package generator

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
)

// foundImage is an image for the artifact, with the bases of its deltas.
type foundImage struct {
	*source.Found
	// named are the bases as they were asked for. The same image may be in it
	// twice, from several versions of the application.
	named []*source.Found
	// whole: it is also sent as a whole image, for devices without any of its bases.
	whole bool
}

func (f *foundImage) digest() image.Digest { return f.Image.ConfigDigest }

// bases are the named bases, without duplicates.
func (f *foundImage) bases() []*source.Found {
	var list []*source.Found
	for _, b := range f.named {
		list = addImage(list, b)
	}
	return list
}

// addImage appends an image that is not in the list yet.
func addImage(list []*source.Found, f *source.Found) []*source.Found {
	if f == nil {
		return list
	}
	for _, have := range list {
		if have.Image.ConfigDigest == f.Image.ConfigDigest {
			return list
		}
	}
	return append(list, f)
}

// find opens every image: those asked for, or those that the manifests use.
func (r *run) find(ctx context.Context, used *manifests.Found) ([]foundImage, error) {
	if r.Images.Skip {
		return nil, nil
	}
	pairs := r.Images.Pairs
	if len(pairs) == 0 && used == nil {
		return nil, nil // there are files only
	}
	if len(pairs) == 0 {
		var err error
		if pairs, err = r.fromManifests(used); err != nil {
			return nil, err
		}
	}
	var images []foundImage
	at := map[string]int{}
	for _, p := range pairs {
		i, ok := at[p.image()]
		if !ok {
			next, err := r.opener.Open(ctx, p.New, "")
			if err != nil {
				return nil, err
			}
			r.warnings = append(r.warnings, next.Warnings...)
			i = len(images)
			at[p.image()] = i
			images = append(images, foundImage{Found: next})
		}
		if p.Base == nil {
			continue
		}
		base, err := r.opener.Open(ctx, *p.Base, images[i].URL)
		if err != nil {
			return nil, fmt.Errorf("base of %s: %w", images[i].URL, err)
		}
		r.warnings = append(r.warnings, base.Warnings...)
		images[i].named = append(images[i].named, base)
	}
	if err := distinct(images); err != nil {
		return nil, err
	}
	return images, r.fromReleases(ctx, images)
}

// Releases finds the older releases that Images.Releases names: each file, then those of
// the directories, the newest first.
func Releases(ctx context.Context, o Options) ([]bases.Release, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	return o.releases(ctx)
}

func (o *Options) releases(ctx context.Context) ([]bases.Release, error) {
	return bases.Find(ctx, o.Images.Releases, bases.Wanted{
		Application: o.Application.Name, Platform: o.Application.Platform,
		Name: o.Artifact.Name, Release: o.Artifact.Software.Version, Output: o.Build.Output, Version: o.Artifact.Software.In,
	})
}

// fromReleases gives each image without a base the images that it replaces in the
// older releases. If some of these lack the image, it is also sent whole.
func (r *run) fromReleases(ctx context.Context, images []foundImage) error {
	if !r.Images.Releases.Any() {
		return nil
	}
	releases, err := r.releases(ctx)
	if err != nil {
		return err
	}
	if len(releases) == 0 {
		r.first = true
	}
	for _, rel := range releases {
		r.older.Artifacts = append(r.older.Artifacts, rel.Path)
	}
	r.older.Given = map[image.Digest]*image.Image{}
	for _, img := range images {
		r.older.Given[img.digest()] = img.Image
	}
	lacking := make([]bool, len(images))
	named := make([][]*source.Found, len(images))
	for _, rel := range releases {
		held, err := r.opener.Held(ctx, rel.Path)
		if err != nil {
			return err
		}
		matched := false
		for i := range images {
			img := &images[i]
			if len(img.named) > 0 {
				continue
			}
			old := rel.Replaced(held, img.URL, img.digest())
			if old == nil {
				lacking[i] = true
				continue
			}
			matched = true
			base, err := r.replaced(ctx, source.Spec{Kind: source.Artifact, Path: rel.Path, Ref: old.URL}, old, img)
			if err != nil {
				return fmt.Errorf("base of %s: %w", img.URL, err)
			}
			r.warnings = append(r.warnings, base.Warnings...)
			named[i] = append(named[i], base)
		}
		if !matched {
			return &UsageError{Text: rel.Path + " has no image that one of the artifact replaces", Hint: "an image replaces one of the same content, name or repository: leave the file out, or name bases with --image CURRENT,NEW"}
		}
	}
	for i := range images {
		if len(named[i]) > 0 {
			images[i].named, images[i].whole = named[i], lacking[i]
		}
	}
	return nil
}

// replaced finds the image of an older release that img replaces.
func (r *run) replaced(ctx context.Context, s source.Spec, old *source.Held, img *foundImage) (*source.Found, error) {
	if old.Digest == img.digest() {
		if base, err := r.opener.Unchanged(ctx, s, img.Image); base != nil || err != nil {
			return base, err
		}
	}
	if base, err := r.opener.Later(ctx, s); base != nil || err != nil {
		return base, err
	}
	return r.opener.Open(ctx, s, "")
}

// fromManifests names the images that the manifests use, without those that the
// device has. They are references in registries, as for the orchestrator itself.
func (r *run) fromManifests(used *manifests.Found) ([]Pair, error) {
	dir := r.Application.ManifestsDir
	var pairs []Pair
	seen := map[string]bool{}
	for _, u := range used.Uses {
		n := source.Normal(u.Image)
		if seen[n] || r.Images.onDevice(u.Image) {
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
			return nil, &ManifestError{Dir: dir, Err: e}
		}
		pairs = append(pairs, Pair{New: spec})
	}
	if len(pairs) == 0 && len(r.Images.OnDevice) == 0 {
		return nil, &ManifestError{Dir: dir, Err: &manifests.Error{Place: manifests.Place{File: "."}, Text: "no images are used", Hint: "name them with --image, or use --skip-images"}}
	}
	return pairs, nil
}

// distinct refuses two contents for one name.
func distinct(images []foundImage) error {
	byName := map[string]*foundImage{}
	for i := range images {
		img := &images[i]
		n := source.Normal(img.URL)
		if other := byName[n]; other != nil {
			return &UsageError{Text: fmt.Sprintf("%s is given twice, by %s and %s", img.URL, other.From, img.From), Hint: "one name is one image: leave one out, or give it another name with SOURCE=NAME:TAG"}
		}
		byName[n] = img
	}
	return nil
}

// checkUses refuses manifests that use images which the device will not have, and
// warns of images that no manifest uses.
func (r *run) checkUses(images []foundImage, used *manifests.Found) error {
	if used == nil {
		return nil
	}
	for _, u := range used.Uses {
		if source.Own(u.Image) {
			return &ManifestError{Dir: r.Application.ManifestsDir, Err: &manifests.Error{Place: u.Place,
				Text: fmt.Sprintf("%s uses %s, a name that devices assign themselves", u.By, u.Image), Hint: "use the image's own name"}}
		}
	}
	if r.Images.Skip {
		return nil
	}
	have := map[string]bool{}
	var names []string
	for _, img := range images {
		have[source.Normal(img.URL)] = true
		names = append(names, img.URL)
	}
	var lacking []manifests.Use
	needed := map[string]bool{}
	for _, u := range used.Uses {
		n := source.Normal(u.Image)
		needed[n] = true
		if !have[n] && !r.Images.onDevice(u.Image) {
			lacking = append(lacking, u)
		}
	}
	if len(lacking) > 0 {
		return &NotShippedError{Dir: r.Application.ManifestsDir, Uses: lacking, Have: names}
	}
	for _, img := range images {
		if !needed[source.Normal(img.URL)] {
			r.warn("%s is shipped, but the manifests do not use it", img.URL)
		}
	}
	return nil
}
