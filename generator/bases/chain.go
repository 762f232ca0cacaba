package bases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// Chain finds the content of images that older artifacts have only as deltas. It
// decodes the deltas with the artifacts that they build on, and so on. Content that
// no artifact has comes from Elsewhere.
type Chain struct {
	Builder *Builder
	// Artifacts are files to look into. Those beside a file that is asked for are
	// looked into as well, after these.
	Artifacts []string
	// Elsewhere finds an image by its name, such as in its registry; nil: nowhere. An
	// image of another digest is not taken.
	Elsewhere *source.Opener
	// Given are images whose content is at hand: what an artifact has of them is not
	// decoded.
	Given map[image.Digest]*image.Image

	contents *Contents
	releases map[string]*Artifact              // read to their ends, by path
	held     map[string]map[image.Digest]bool  // images of artifacts, by path
	missing  map[string]map[image.Digest]error // of releases that were put together
	asked    map[image.Digest]bool             // images that Elsewhere was asked for
}

// NewChain returns a chain with a directory of its own in temp, apart from the layers of
// other images there. Its Builder is closed by the caller.
func NewChain(temp string, tell func(stage, what string, done, total int64)) (*Chain, error) {
	dir, err := os.MkdirTemp(temp, "older-*")
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	return &Chain{Builder: &Builder{Temp: dir, Tell: tell}}, nil
}

// Image puts together an image of the artifact. The error is a *source.Error that
// says what is needed if its content is nowhere.
func (ch *Chain) Image(ctx context.Context, path string, digest image.Digest) (*image.Image, error) {
	ch.begin()
	if err := ch.resolve(ctx, path); err != nil {
		return nil, err
	}
	if img := ch.contents.Images[digest]; img != nil {
		return img, nil
	}
	rel := ch.releases[path]
	images := rel.Meta.ImageComponents()
	i := slices.IndexFunc(images, func(c artifact.Component) bool { return c.Digest == digest })
	if i < 0 {
		return nil, &source.Error{Text: fmt.Sprintf("%s holds no image %s", path, digest), NotFound: true}
	}
	found, err := ch.open(ctx, images[i].URL, digest)
	if found != nil || err != nil {
		return found, err
	}
	return nil, ch.missing[path][digest]
}

func (ch *Chain) begin() {
	if ch.contents != nil {
		return
	}
	ch.contents = NewContents()
	ch.releases, ch.held = map[string]*Artifact{}, map[string]map[image.Digest]bool{}
	ch.missing, ch.asked = map[string]map[image.Digest]error{}, map[image.Digest]bool{}
}

// resolve puts together all images of an artifact, as far as their content is
// there: deltas build on earlier images of the same artifact.
func (ch *Chain) resolve(ctx context.Context, path string) error {
	if ch.releases[path] != nil {
		return nil
	}
	rel, err := ch.Builder.Read(ctx, path)
	if err != nil {
		return err
	}
	ch.releases[path], ch.missing[path] = rel, map[image.Digest]error{}
	for _, comp := range rel.Meta.ImageComponents() {
		if img := ch.Given[comp.Digest]; img != nil && ch.contents.Images[comp.Digest] == nil {
			if err := ch.Add(ctx, comp.URL, img); err != nil {
				return err
			}
		}
		for _, base := range basesOf(comp) {
			if err := ch.find(ctx, path, base); err != nil {
				return err
			}
		}
		_, err := ch.Builder.Image(ctx, rel, comp, ch.contents)
		var needs *source.Error
		switch {
		case errors.As(err, &needs):
			needs.Hint = "name the artifacts that it builds on, or the image itself, with --content"
			ch.missing[path][comp.Digest] = err
			if _, err := ch.open(ctx, comp.URL, comp.Digest); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
	return nil
}

func basesOf(comp artifact.Component) []artifact.Base {
	list := slices.Clone(comp.Bases)
	for _, v := range comp.Variants {
		list = append(list, v.Bases...)
	}
	return list
}

// find looks for a base of an image in the artifact at path. It is not an error if
// there is none.
func (ch *Chain) find(ctx context.Context, path string, base artifact.Base) error {
	beside, err := filepath.Glob(filepath.Join(escape(filepath.Dir(path)), "*.mender"))
	if err != nil {
		return err
	}
	for _, other := range append(slices.Clone(ch.Artifacts), beside...) {
		if ch.contents.Images[base.Digest] != nil {
			return nil
		}
		if other != path && ch.holds(ctx, other, base.Digest) {
			if err := ch.resolve(ctx, other); err != nil {
				return err
			}
		}
	}
	_, err = ch.open(ctx, base.URL, base.Digest)
	return err
}

// escape writes a path as a pattern that fits it alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// holds reports whether an artifact has an image, by its header. A file that is no
// artifact has none.
func (ch *Chain) holds(ctx context.Context, path string, digest image.Digest) bool {
	if have, read := ch.held[path]; read {
		return have[digest]
	}
	have := map[image.Digest]bool{}
	ch.held[path] = have
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	r, err := mender.NewReader(metered.Reader(ctx, f, nil), mender.ReadOptions{})
	if err != nil || r.Header().PayloadType != mender.PayloadTypeApp {
		return false
	}
	if m, _, err := artifact.ParseMetadata(r.Header().MetaData); err == nil {
		for _, c := range m.ImageComponents() {
			have[c.Digest] = true
		}
	}
	return have[digest]
}

// Add adds an image that is there to the content that deltas build on.
func (ch *Chain) Add(ctx context.Context, name string, img *image.Image) error {
	ch.begin()
	local, err := ch.Builder.local(ctx, name, img)
	if err != nil {
		return err
	}
	ch.contents.Images[img.ConfigDigest] = local
	return ch.Builder.Add(ch.contents, DeltaImage(name, local))
}

// open asks Elsewhere for an image, once; nil if it is not there.
func (ch *Chain) open(ctx context.Context, name string, digest image.Digest) (*image.Image, error) {
	if img := ch.contents.Images[digest]; img != nil || ch.asked[digest] || ch.Elsewhere == nil {
		return img, nil
	}
	ch.asked[digest] = true
	spec, err := source.Parse(name)
	if err != nil {
		return nil, nil // the caller reports what is missing
	}
	found, err := ch.Elsewhere.Open(ctx, spec, "")
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil || found.Image.ConfigDigest != digest:
		return nil, nil // the caller reports what is missing
	}
	if err := ch.Add(ctx, name, found.Image); err != nil {
		return nil, err
	}
	return ch.contents.Images[digest], nil
}
