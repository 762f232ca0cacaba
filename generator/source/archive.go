package source

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
)

// archive opens an image archive. It opens each archive only once.
func (o *Opener) archive(path string) (*image.Archive, error) {
	if a := o.archives[path]; a != nil {
		return a, nil
	}
	a, err := image.OpenOnHost(path)
	if err != nil {
		return nil, err
	}
	if o.archives == nil {
		o.archives = map[string]*image.Archive{}
	}
	o.archives[path] = a
	return a, nil
}

func (o *Opener) fromArchive(s Spec) (*Found, error) {
	a, err := o.archive(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Error{Text: s.Path + " does not exist", NotFound: true}
	case err != nil:
		return nil, err
	}
	img, err := o.choose(a, s.String(), s.Ref)
	if err != nil {
		return nil, err
	}
	url := s.Ref
	if !isName(url) {
		url = onlyName(img.Tags)
	}
	f := &Found{Image: img, URL: url}
	if o.Attestations && s.Kind == OCI {
		if f.Attestations, err = layoutAttestations(s.Path, img); err != nil {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%s: cannot read its bill of materials: %s", s, oneLine(err)))
		}
	}
	return f, checkLayers(s.String(), img)
}

// choose takes the image with the tag and the wanted platform out of an
// archive. For an unknown tag the error lists the tags that the archive has.
func (o *Opener) choose(a *image.Archive, what, tag string) (*image.Image, error) {
	img, err := a.SelectTag(tag, o.Platform)
	if err == nil {
		return img, nil
	}
	var p *image.PlatformError
	if errors.As(err, &p) {
		return nil, err
	}
	var tags []string
	for _, i := range a.Images() {
		tags = append(tags, i.Tags...)
	}
	e := &Error{Text: what, Err: err, NotFound: true}
	if len(tags) > 0 {
		e.Hint = "it holds " + strings.Join(tags, ", ")
	}
	return nil, e
}

// isName reports whether a tag of an archive is a whole name (web:1). Some OCI
// layouts have only a tag (1).
func isName(tag string) bool {
	return strings.ContainsAny(tag, ":/") && CheckURL(tag) == nil
}

// onlyName returns the name of an image that has exactly one.
func onlyName(tags []string) string {
	found := ""
	for _, t := range tags {
		if !isName(t) {
			continue
		}
		if found != "" && Normal(found) != Normal(t) {
			return ""
		}
		if found == "" {
			found = t
		}
	}
	return found
}

// checkLayers refuses an image without the content of some layers. Archives for a
// device that already has those layers contain such images.
func checkLayers(what string, img *image.Image) error {
	for _, l := range img.Layers {
		if l.Open == nil {
			return &Error{Text: fmt.Sprintf("%s: layer %s is not in it", what, l.DiffID)}
		}
	}
	return nil
}
