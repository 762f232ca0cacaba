package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/generator/write"
)

// older is an App Artifact that is used as a source of images.
type older struct {
	provides map[string]string
	identity artifact.MadeOver
	images   []olderImage
	layers   map[image.Digest]artifact.Layer // that its metadata knows
}

type olderImage struct {
	info artifact.ImageInfo
	file string // the image's archive; empty if the artifact has only a delta of it
}

// Held is an image in an older artifact.
type Held struct {
	URL    string
	Digest image.Digest // of its config; an artifact of the shell app-gen may have another one
}

// Held lists the images that are in an artifact, whole or as deltas.
func (o *Opener) Held(ctx context.Context, path string) ([]Held, error) {
	a, err := o.older(ctx, path)
	if err != nil {
		return nil, err
	}
	var list []Held
	for _, img := range a.images {
		list = append(list, Held{img.info.URLNew, img.info.Digest})
	}
	return list, nil
}

// older reads an artifact, once.
func (o *Opener) older(ctx context.Context, path string) (*older, error) {
	if a := o.artifacts[path]; a != nil {
		return a, nil
	}
	a, err := o.unpack(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Text: path + " does not exist", NotFound: true}
	}
	if err != nil {
		return nil, &Error{Text: path, Err: err}
	}
	if o.artifacts == nil {
		o.artifacts = map[string]*older{}
	}
	o.artifacts[path] = a
	return a, nil
}

func (o *Opener) fromArtifact(ctx context.Context, s Spec, near string) (*Found, error) {
	a, err := o.older(ctx, s.Path)
	if err != nil {
		return nil, err
	}
	img, err := a.choose(s, near)
	if err != nil {
		return nil, err
	}
	if img.file == "" && o.Rebuild != nil && img.info.Kind == artifact.KindDelta {
		got, err := o.Rebuild(ctx, s.Path, img.info.Digest)
		if err != nil {
			return nil, err
		}
		return &Found{Image: got, URL: img.info.URLNew, Provides: a.provides, Artifact: a.identity}, nil
	}
	if img.file == "" {
		return nil, &Error{
			Text: fmt.Sprintf("%s: it has %s as a delta, without the content", s.Path, img.info.URLNew),
			Hint: "take the image from where that artifact took it (registry, docker-daemon: or an archive)",
		}
	}
	archive, err := o.archive(img.file)
	if err != nil {
		return nil, &Error{Text: fmt.Sprintf("%s: %s", s.Path, img.info.URLNew), Err: err}
	}
	got, err := o.choose(archive, s.String(), "")
	if err != nil {
		return nil, err
	}
	return &Found{Image: got, URL: img.info.URLNew, Provides: a.provides, Artifact: a.identity}, checkLayers(s.String(), got)
}

// Unchanged finds an image in an older artifact that is the image img, and takes the
// content of that one: nothing is decoded. Nil: the artifact has another image.
func (o *Opener) Unchanged(ctx context.Context, s Spec, img *image.Image) (*Found, error) {
	a, err := o.older(ctx, s.Path)
	if err != nil {
		return nil, err
	}
	held, err := a.choose(s, "")
	if err != nil || held.info.Digest != img.ConfigDigest {
		return nil, err
	}
	return &Found{Image: img, URL: held.info.URLNew, From: s, Provides: a.provides, Artifact: a.identity, Layers: a.layers}, nil
}

func (a *older) choose(s Spec, near string) (*olderImage, error) {
	var fit []*olderImage
	var urls []string
	for i := range a.images {
		img := &a.images[i]
		urls = append(urls, img.info.URLNew)
		if s.Ref == "" || Normal(s.Ref) == Normal(img.info.URLNew) {
			fit = append(fit, img)
		}
	}
	if len(fit) > 1 && near != "" {
		var close []*olderImage
		for _, img := range fit {
			if Repository(img.info.URLNew) == Repository(near) {
				close = append(close, img)
			}
		}
		if len(close) > 0 {
			fit = close
		}
	}
	switch {
	case len(a.images) == 0:
		return nil, &Error{Text: s.Path + " holds no images", NotFound: true}
	case len(fit) == 0:
		return nil, &Error{Text: fmt.Sprintf("%s holds no %s", s.Path, s.Ref), Hint: "it holds " + strings.Join(urls, ", "), NotFound: true}
	case len(fit) > 1:
		return nil, &Error{Text: s.Path + " holds several images", Hint: fmt.Sprintf("name one: mender:%s#REF with REF one of %s", s.Path, strings.Join(urls, ", "))}
	}
	return fit[0], nil
}

// unpack reads the artifact to its end, which verifies it. It keeps the image
// archives in the temporary directory.
func (o *Opener) unpack(ctx context.Context, path string) (*older, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int64(-1)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	r, err := mender.NewReader(metered.Reader(ctx, f, metered.Sum(func(n int64) { o.tell(path, n, size) })), mender.ReadOptions{})
	if err != nil {
		return nil, err
	}
	h := r.Header()
	if h.PayloadType != mender.PayloadTypeApp {
		return nil, fmt.Errorf("its payload type is %q, not %q", h.PayloadType, mender.PayloadTypeApp)
	}
	files := map[image.Digest]bool{} // components that are no images
	layers := map[image.Digest]artifact.Layer{}
	if m, _, err := artifact.ParseMetadata(h.MetaData); err == nil {
		for _, c := range m.Components {
			files[c.Digest] = c.IsFile()
			for _, l := range c.Layers {
				layers[l.DiffID] = l
			}
		}
	}
	a := &older{provides: h.Provides, layers: layers}
	for {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			a.identity = artifact.MadeOver{Name: h.Name, Digest: a.content()}
			return a, nil
		}
		if err != nil {
			return nil, err
		}
		if file.Name != artifact.ImagesPayload {
			continue
		}
		err = artifact.ReadImages(r, artifact.ReadOptions{SpoolDir: o.TempDir}, func(info artifact.ImageInfo, content io.Reader) error {
			if files[info.Digest] {
				return nil
			}
			if info.Kind == artifact.KindShared || info.Variant > 1 {
				return nil // the image was recorded with its first member
			}
			img := olderImage{info: info}
			if n := len(a.images); n > 0 && a.images[n-1].info.Digest == info.Digest { // the whole image, beside its deltas
				a.images = a.images[:n-1]
			}
			if info.Kind == artifact.KindFull {
				var err error
				if img.file, err = o.keep(content); err != nil {
					return fmt.Errorf("%s: %w", info.URLNew, err)
				}
			}
			a.images = append(a.images, img)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

// content is the digest that artifact.MadeOver describes.
func (a *older) content() digest.Digest {
	var list []string
	for _, img := range a.images {
		list = append(list, img.info.Digest.Hex()+"\n")
	}
	slices.Sort(list)
	return digest.Of([]byte(strings.Join(slices.Compact(list), "")))
}

// keep writes r to a new file in the temporary directory and returns its name.
func (o *Opener) keep(r io.Reader) (string, error) {
	f, err := os.CreateTemp(o.TempDir, "image-*")
	if err != nil {
		return "", &write.Error{Err: err}
	}
	_, err = io.Copy(onDisk(f), r)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &write.Error{Err: cerr}
	}
	return f.Name(), err
}

// disk is a file whose errors can be distinguished from read errors.
type disk struct{ to io.Writer }

// onDisk writes a file of a source, which does not say how much will come of it.
func onDisk(f *os.File) io.Writer { return disk{scratch.Sparing(f)} }

func (d disk) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	if err != nil {
		return n, &write.Error{Err: err}
	}
	return n, nil
}
