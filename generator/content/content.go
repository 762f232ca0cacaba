// Package content takes the images of an artifact out of it: each variant of each image
// becomes a file that is named by its digest, which devices fetch from any place that
// serves files, or from a registry. What stays is an artifact of some kilobytes, however many older releases
// it has deltas for.
//
// It encodes nothing: what travels is what the artifact has.
package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/write"
)

// Error says what is wrong with an artifact or a place, and what to do about it.
type Error struct{ Text, Hint string }

func (e *Error) Error() string { return e.Text }

// Advice is the hint.
func (e *Error) Advice() string { return e.Hint }

// Options say what Take does.
type Options struct {
	Artifact string // the file that the images are taken out of; it stays as it is
	Output   string // the artifact without them
	Place    *places.Contents
	Sources  []string // URLs below which devices find it; none: their configuration says where
	Signing  mender.Options
	TempDir  string // for the payload; "" is the directory of the output
	// Deltas are more forms of images, by the digests of these. Their content is in Place.
	Deltas map[image.Digest][]artifact.Variant
}

// File is content in a place.
type File struct {
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`
	URL    string        `json:"url"`            // the component, or the first of those with the image
	Base   string        `json:"base,omitempty"` // the image that a delta builds on; "" for none
	There  bool          `json:"there"`          // an earlier call put it there
}

// Result describes what Take has made.
type Result struct {
	Name  string `json:"artifact_name"`
	Size  int64  `json:"size"` // bytes of the artifact that is left
	Files []File `json:"content"`
}

// Take writes the images of an artifact into a place, and an artifact without them. The
// content is there before the artifact is. A file in the place is written once.
func Take(ctx context.Context, o Options) (*Result, error) {
	temp, err := os.MkdirTemp(o.TempDir, ".app-gen-*")
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	defer os.RemoveAll(temp)
	t := &taker{Options: o, temp: temp, made: map[digest.Digest][]artifact.Content{}}
	if err := t.read(ctx); err != nil {
		return nil, err
	}
	spec, err := t.spec()
	if err != nil {
		return nil, err
	}
	if err := o.Place.Keep(ctx, t.header.Name, contentsOf(t.meta), imagesOf(t.meta)); err != nil {
		return nil, err
	}
	err = write.To(ctx, o.Output, temp, func(w io.Writer) error {
		counted := metered.Writer(ctx, w, func(n int64) { t.result.Size += n })
		options := o.Signing
		options.TempDir, options.Compression = temp, t.header.Compression
		if options.Compression == mender.None { // images do not get smaller, but their description does
			options.Compression = mender.Gzip
		}
		return mender.Write(counted, *spec, options)
	})
	return &t.result, err
}

// taker takes the images out of one artifact.
type taker struct {
	Options
	temp   string
	header *mender.Header
	meta   *artifact.Metadata
	made   map[digest.Digest][]artifact.Content // of an image: of its variants, in their order
	shared map[digest.Digest]string             // of an image: the file with what its variants share
	rest   *artifact.ImagesWriter               // files among the components stay in the payload; nil: there are none
	files  []mender.File
	result Result
}

// read reads the artifact to its end, which verifies it, and writes the content.
func (t *taker) read(ctx context.Context) error {
	f, err := os.Open(t.Artifact)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := mender.NewReader(metered.Reader(ctx, f, nil), mender.ReadOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", t.Artifact, err)
	}
	t.header = r.Header()
	if t.header.PayloadType != mender.PayloadTypeApp {
		return &Error{Text: fmt.Sprintf("%s: its payload type is %q, not %q", t.Artifact, t.header.PayloadType, mender.PayloadTypeApp)}
	}
	if len(t.header.Scripts) > 0 {
		return &Error{Text: t.Artifact + ": it has state scripts, which cannot be copied", Hint: "make it without --script"}
	}
	if t.meta, _, err = artifact.ParseMetadata(t.header.MetaData); err != nil {
		return fmt.Errorf("%s: %w", t.Artifact, err)
	}
	if slices.Contains(t.meta.Requires, artifact.FeatureContent) {
		return &Error{Text: t.Artifact + ": its images are not in it", Hint: "give the artifact that app-gen made"}
	}
	if len(t.meta.Components) == 0 {
		return &Error{Text: t.Artifact + ": its metadata does not name its images", Hint: "make it with app-gen"}
	}
	t.meta.ContentSources = t.Sources
	t.result.Name, t.shared = t.header.Name, map[digest.Digest]string{}
	for {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.Artifact, err)
		}
		if file.Name == artifact.ImagesPayload {
			err = t.images(ctx, r)
		} else {
			err = t.keep(file.Name, func(w io.Writer) error { _, err := io.Copy(w, r); return err })
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", t.Artifact, file.Name, err)
		}
	}
}

// keep leaves a file in the payload.
func (t *taker) keep(name string, fill func(io.Writer) error) error {
	path := filepath.Join(t.temp, name)
	size, err := writeNew(path, fill)
	if err != nil {
		return err
	}
	t.files = append(t.files, mender.File{Name: name, Size: size, Open: func() (io.ReadCloser, error) { return os.Open(path) }})
	return nil
}

func writeNew(path string, fill func(io.Writer) error) (int64, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, &write.Error{Err: err}
	}
	err = fill(f)
	info, serr := f.Stat()
	if cerr := f.Close(); err == nil {
		err = errors.Join(serr, cerr)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// images writes each variant of each image into the place. Files stay in the payload.
func (t *taker) images(ctx context.Context, r io.Reader) error {
	var payload int64
	read := func(w io.Writer) error {
		t.rest = artifact.NewImagesWriter(w)
		err := artifact.ReadImages(r, artifact.ReadOptions{SpoolDir: t.temp}, func(info artifact.ImageInfo, content io.Reader) error {
			c := t.component(info.Digest)
			switch {
			case c == nil:
				return fmt.Errorf("%w: %s is not named in the metadata", artifact.ErrPayload, info.Digest)
			case c.IsFile():
				return t.rest.Add(info, info.Size, content)
			case info.Kind == artifact.KindShared:
				path := filepath.Join(t.temp, "shared-"+info.Digest.Hex())
				_, err := writeNew(path, func(w io.Writer) error { _, err := io.Copy(w, content); return err })
				t.shared[info.Digest] = path
				return err
			}
			return t.image(ctx, c, info, content)
		})
		if err != nil {
			return err
		}
		payload = t.rest.UnpackedSize()
		return t.rest.Close()
	}
	if !slices.ContainsFunc(t.meta.Components, func(c artifact.Component) bool { return c.IsFile() }) {
		if t.meta.Sizes != nil {
			t.meta.Sizes.ImagesPayload = 0
		}
		return read(io.Discard)
	}
	if err := t.keep(artifact.ImagesPayload, read); err != nil {
		return err
	}
	if t.meta.Sizes != nil {
		t.meta.Sizes.ImagesPayload = payload
	}
	return nil
}

// component is the first component with a digest; nil for none.
func (t *taker) component(d digest.Digest) *artifact.Component {
	i := slices.IndexFunc(t.meta.Components, func(c artifact.Component) bool { return c.Digest == d })
	if i < 0 {
		return nil
	}
	return &t.meta.Components[i]
}

// image writes one variant of an image as a file of its own.
func (t *taker) image(ctx context.Context, c *artifact.Component, info artifact.ImageInfo, content io.Reader) error {
	n := len(t.made[c.Digest])
	base := ""
	if bases := c.Bases; c.Format == artifact.FormatVariants {
		if n >= len(c.Variants) {
			return fmt.Errorf("%w: %s has more variants than its metadata says", artifact.ErrPayload, c.URL)
		}
		if bases = c.Variants[n].Bases; len(bases) > 0 {
			base = bases[0].URL
		}
	} else if len(bases) > 0 {
		base = bases[0].URL
	}
	info.URLCurrent, info.SumCurrent = info.URLNew, info.SumNew
	switch info.Kind {
	case artifact.KindFull:
		info.Variant = -1
	case artifact.KindDelta:
		info.Variant = 1
	default:
		return &Error{Text: fmt.Sprintf("%s is a %s", c.URL, info.Kind), Hint: "make the artifact with app-gen"}
	}
	path := filepath.Join(t.temp, "content")
	defer os.Remove(path)
	sum := sha256.New()
	size, err := writeNew(path, func(f io.Writer) error {
		w := artifact.NewImagesWriter(io.MultiWriter(f, sum))
		if c.Format == artifact.FormatVariants && c.Variants[n].Shared {
			if err := t.addShared(w, info); err != nil {
				return err
			}
		}
		if err := w.Add(info, info.Size, metered.Reader(ctx, content, nil)); err != nil {
			return err
		}
		return w.Close()
	})
	if err != nil {
		return err
	}
	file := File{Digest: digest.OfHash(sum), Size: size, URL: c.URL, Base: base}
	if file.There, err = add(ctx, t.Place, path, file); err != nil {
		return err
	}
	t.result.Files = append(t.result.Files, file)
	t.made[c.Digest] = append(t.made[c.Digest], artifact.Content{Digest: file.Digest, Size: size})
	return nil
}

// addShared adds what the variants of an image share.
func (t *taker) addShared(w *artifact.ImagesWriter, info artifact.ImageInfo) error {
	path := t.shared[info.Digest]
	if path == "" {
		return fmt.Errorf("%w: the variants of %s share content that is missing", artifact.ErrPayload, info.URLNew)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	info.Kind, info.Variant = artifact.KindShared, 0
	return w.Add(info, st.Size(), f)
}

func (f File) content() artifact.Content { return artifact.Content{Digest: f.Digest, Size: f.Size} }

// add copies a file into a place, unless it is there.
func add(ctx context.Context, place *places.Contents, path string, f File) (there bool, err error) {
	there, err = place.Add(ctx, f.content(), path)
	var local *fs.PathError
	if errors.As(err, &local) {
		err = &write.Error{Err: err}
	}
	return there, err
}

// spec describes the artifact that is left.
func (t *taker) spec() (*mender.Spec, error) {
	for i := range t.meta.Components {
		if err := t.refer(&t.meta.Components[i]); err != nil {
			return nil, err
		}
	}
	t.meta.Version = artifact.VersionCurrent
	for _, f := range []string{artifact.FeatureDelta, artifact.FeatureVariants, artifact.FeatureContent} {
		if !slices.Contains(t.meta.Requires, f) {
			t.meta.Requires = append(t.meta.Requires, f)
		}
	}
	if slices.ContainsFunc(t.meta.Components, func(c artifact.Component) bool { return c.IsFile() }) && !slices.Contains(t.meta.Requires, artifact.FeatureFiles) {
		t.meta.Requires = append(t.meta.Requires, artifact.FeatureFiles)
	}
	text, err := t.meta.Encode()
	if err != nil {
		return nil, err
	}
	h := t.header
	return &mender.Spec{
		Name: h.Name, Group: h.Group, DeviceTypes: h.DeviceTypes, DependsNames: h.DependsNames, DependsGroups: h.DependsGroups,
		PayloadType: h.PayloadType, Provides: h.Provides, Depends: h.Depends, ClearsProvides: h.ClearsProvides, MetaData: text, Files: t.files,
	}, nil
}

// refer makes a component say where its variants are. What an image that came in one form
// takes on a device stays in the sizes of the artifact.
func (t *taker) refer(c *artifact.Component) error {
	if c.IsFile() {
		return nil
	}
	made := t.made[c.Digest]
	if c.Format != artifact.FormatVariants {
		v := artifact.Variant{Format: c.Format, Bases: c.Bases, PayloadBytes: c.PayloadBytes}
		c.Layers = slices.Clone(c.Layers)
		for n, l := range c.Layers {
			v.Layers = append(v.Layers, artifact.VariantLayer{Encoding: l.Encoding, Bytes: l.Bytes})
			c.Layers[n].Encoding, c.Layers[n].Bytes = artifact.EncodingVariant, 0
		}
		if v.Layers == nil {
			v.Layers = []artifact.VariantLayer{}
		}
		c.Format, c.Bases, c.Variants = artifact.FormatVariants, nil, []artifact.Variant{v}
	}
	if len(made) != len(c.Variants) {
		return fmt.Errorf("%w: %s has %d variants, and the metadata says %d", artifact.ErrPayload, c.URL, len(made), len(c.Variants))
	}
	c.Variants = slices.Clone(c.Variants)
	for n := range c.Variants {
		c.Variants[n].Content = &made[n]
	}
	t.addDeltas(c)
	return nil
}

// addDeltas adds the deltas over bases that a component has none for, before the form that
// needs no base.
func (t *taker) addDeltas(c *artifact.Component) {
	for _, v := range t.Deltas[c.Digest] {
		base := v.Bases[0].Digest
		if slices.ContainsFunc(c.Variants, func(have artifact.Variant) bool { return len(have.Bases) > 0 && have.Bases[0].Digest == base }) {
			continue
		}
		at := len(c.Variants)
		if last := c.Variants[at-1]; len(last.Bases) == 0 {
			at--
		}
		c.Variants = slices.Insert(c.Variants, at, v)
		c.PayloadBytes += v.PayloadBytes
		if i, there := slices.BinarySearch(t.meta.Images, base.Hex()); !there {
			t.meta.Images = slices.Insert(t.meta.Images, i, base.Hex())
		}
	}
}

// Mirror copies the content of an artifact from one place to another. What is there stays.
// Nothing is copied unless all of it can be.
func Mirror(ctx context.Context, path string, from, to *places.Contents, temp string) (list []File, err error) {
	name, meta, err := metadata(path)
	if err != nil {
		return nil, err
	}
	list = contentOf(meta)
	look := from.Has
	if from.Directory() != "" {
		look = from.Compare
	}
	for _, f := range list {
		if err := look(ctx, f.content()); err != nil {
			return nil, lacks(f, from, err)
		}
	}
	for i, f := range list {
		if list[i].There, err = mirror(ctx, f, from, to, temp); err != nil {
			return nil, err
		}
	}
	return list, to.Keep(ctx, name, contentsOf(meta), imagesOf(meta))
}

func lacks(f File, from *places.Contents, err error) error {
	var place *places.Error
	if errors.As(err, &place) {
		return err
	}
	return &Error{Text: fmt.Sprintf("content of %s: %s/%s: %v", f.URL, from, f.Digest.Hex(), err), Hint: "make it again with app-gen by-reference"}
}

func mirror(ctx context.Context, f File, from, to *places.Contents, temp string) (there bool, err error) {
	if dir := from.Directory(); dir != "" {
		return add(ctx, to, filepath.Join(dir, f.Digest.Hex()), f)
	}
	file, err := os.CreateTemp(temp, ".app-gen-*")
	if err != nil {
		return false, &write.Error{Err: err}
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := from.Download(ctx, f.content(), file); err != nil {
		return false, lacks(f, from, err)
	}
	return add(ctx, to, file.Name(), f)
}

// contentsOf is all content that an artifact refers to.
func contentsOf(m *artifact.Metadata) (all []artifact.Content) {
	for _, f := range contentOf(m) {
		all = append(all, f.content())
	}
	return all
}

// imagesOf names the images of an artifact.
func imagesOf(m *artifact.Metadata) (all []places.ImageName) {
	for _, c := range m.ImageComponents() {
		all = append(all, places.ImageName{URL: c.URL, Config: c.Digest, Platform: m.Platform})
	}
	return all
}

// metadata reads the metadata of an artifact whose images are not in it.
func metadata(path string) (name string, meta *artifact.Metadata, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	r, err := mender.NewReader(f, mender.ReadOptions{})
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	if meta, _, err = artifact.ParseMetadata(r.Header().MetaData); err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(contentOf(meta)) == 0 {
		return "", nil, &Error{Text: path + ": it needs no content: its images are in it", Hint: "app-gen by-reference takes them out"}
	}
	return r.Header().Name, meta, nil
}

// contentOf lists the content that an artifact refers to, each once.
func contentOf(m *artifact.Metadata) (list []File) {
	seen := map[image.Digest]bool{}
	for _, c := range m.Components {
		if seen[c.Digest] {
			continue
		}
		seen[c.Digest] = true
		for _, v := range c.Variants {
			if v.Content == nil {
				continue
			}
			f := File{Digest: v.Content.Digest, Size: v.Content.Size, URL: c.URL}
			if len(v.Bases) > 0 {
				f.Base = v.Bases[0].URL
			}
			list = append(list, f)
		}
	}
	return list
}
