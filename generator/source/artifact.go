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
	"sync"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/generator/write"
)

// older is an App Artifact that is used as a source of images. Its metadata lists them, so
// that the payload is read only for content, or where the metadata is the shell app-gen's.
type older struct {
	provides map[string]string
	identity artifact.MadeOver
	images   []olderImage
	unpacked bool // the payload was read
}

// olderImage has no kind before the payload is read.
type olderImage struct {
	url    string
	digest image.Digest
	kind   artifact.Kind
	file   string // the image's archive; empty if the artifact has only a delta of it
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
		list = append(list, Held{img.url, img.digest})
	}
	return list, nil
}

// older reads the header of an artifact, once, and its payload if its metadata does not
// say what is in it.
func (o *Opener) older(ctx context.Context, path string) (*older, error) {
	if a := o.artifacts[path]; a != nil {
		return a, nil
	}
	a, err := o.header(ctx, path)
	if err == nil && len(a.images) == 0 {
		err = o.unpack(ctx, path, a)
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	a.identity.Digest = a.content()
	if o.artifacts == nil {
		o.artifacts = map[string]*older{}
	}
	o.artifacts[path] = a
	return a, nil
}

func unreadable(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Text: path + " does not exist", NotFound: true}
	}
	return &Error{Text: path, Err: err}
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
	if !a.unpacked {
		if err := o.unpack(ctx, s.Path, a); err != nil {
			return nil, unreadable(s.Path, err)
		}
	}
	if img.file == "" && o.Rebuild != nil && img.kind == artifact.KindDelta {
		got, err := o.Rebuild(ctx, s.Path, img.digest)
		if err != nil {
			return nil, err
		}
		return &Found{Image: got, URL: img.url, Provides: a.provides, Artifact: a.identity}, nil
	}
	if img.file == "" {
		return nil, &Error{
			Text: fmt.Sprintf("%s: it has %s as a delta, without the content", s.Path, img.url),
			Hint: "take the image from where that artifact took it (registry, docker-daemon: or an archive)",
		}
	}
	archive, err := o.archive(img.file)
	if err != nil {
		return nil, &Error{Text: fmt.Sprintf("%s: %s", s.Path, img.url), Err: err}
	}
	got, err := o.choose(archive, s.String(), "")
	if err != nil {
		return nil, err
	}
	return &Found{Image: got, URL: img.url, Provides: a.provides, Artifact: a.identity}, checkLayers(s.String(), got)
}

// Unchanged finds an image in an older artifact that is the image img, and takes the
// content of that one: nothing is decoded. Nil: the artifact has another image.
func (o *Opener) Unchanged(ctx context.Context, s Spec, img *image.Image) (*Found, error) {
	a, err := o.older(ctx, s.Path)
	if err != nil {
		return nil, err
	}
	held, err := a.choose(s, "")
	if err != nil || held.digest != img.ConfigDigest {
		return nil, err
	}
	return &Found{Image: img, URL: held.url, From: s, Provides: a.provides, Artifact: a.identity}, nil
}

// Later finds an image in an older artifact whose config the cache has. The artifact is not
// read before a layer is opened, which may happen concurrently. Nil: Open must find it.
func (o *Opener) Later(ctx context.Context, s Spec) (*Found, error) {
	a, err := o.older(ctx, s.Path)
	if err != nil {
		return nil, err
	}
	held, err := a.choose(s, "")
	if err != nil {
		return nil, err
	}
	img := o.Cache.image(held.digest)
	if img == nil || o.fit(img.Platform) < image.ExactFit {
		return nil, nil
	}
	read := sync.OnceValues(func() (*image.Image, error) {
		o.late.Lock()
		defer o.late.Unlock()
		f, err := o.Open(ctx, s, "")
		if err != nil {
			return nil, err
		}
		if f.Image.ConfigDigest != img.ConfigDigest {
			return nil, fmt.Errorf("%s: %s is another image than its metadata says", s.Path, held.url)
		}
		return f.Image, nil
	})
	for i := range img.Layers {
		img.Layers[i].Open = func() (io.ReadCloser, error) {
			f, err := read()
			if err != nil {
				return nil, err
			}
			return f.Layers[i].Open()
		}
	}
	return &Found{Image: img, URL: held.url, From: s, Provides: a.provides, Artifact: a.identity}, nil
}

// image is an image without the content of its layers, by the digest of its config; nil: the
// cache does not have it.
func (c *Cache) image(d image.Digest) *image.Image {
	b, err := c.Read(CacheKey{Kind: cachedConfig, Hex: d.Hex()}, image.MaxConfig)
	if err != nil || digest.Of(b) != d {
		return nil
	}
	config, err := image.ParseConfig(b)
	if err != nil {
		return nil
	}
	img := &image.Image{ConfigDigest: d, Config: b, DiffIDs: config.RootFS.DiffIDs, Platform: config.Platform()}
	for _, id := range img.DiffIDs {
		img.Layers = append(img.Layers, image.Layer{DiffID: id, Size: -1})
	}
	return img
}

func (a *older) choose(s Spec, near string) (*olderImage, error) {
	var fit []*olderImage
	var urls []string
	for i := range a.images {
		img := &a.images[i]
		urls = append(urls, img.url)
		again := slices.ContainsFunc(fit, func(other *olderImage) bool { return other.digest == img.digest })
		if !again && (s.Ref == "" || Normal(s.Ref) == Normal(img.url)) {
			fit = append(fit, img)
		}
	}
	if len(fit) > 1 && near != "" {
		var close []*olderImage
		for _, img := range fit {
			if Repository(img.url) == Repository(near) {
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

// reader opens an artifact of an application, in the file f, which the caller closes.
func (o *Opener) reader(ctx context.Context, path string) (r *mender.Reader, f *os.File, err error) {
	if f, err = os.Open(path); err != nil {
		return nil, nil, err
	}
	size := int64(-1)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	r, err = mender.NewReader(metered.Reader(ctx, f, metered.Sum(func(n int64) { o.tell(path, n, size) })), mender.ReadOptions{})
	if err == nil && r.Header().PayloadType != mender.PayloadTypeApp {
		err = fmt.Errorf("its payload type is %q, not %q", r.Header().PayloadType, mender.PayloadTypeApp)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return r, f, nil
}

// header reads what the header says of an artifact.
func (o *Opener) header(ctx context.Context, path string) (*older, error) {
	r, f, err := o.reader(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := r.Header()
	a := &older{provides: h.Provides, identity: artifact.MadeOver{Name: h.Name}}
	m, _, err := artifact.ParseMetadata(h.MetaData)
	if err != nil {
		return a, nil // the payload says what is in it
	}
	for _, c := range m.ImageComponents() {
		a.images = append(a.images, olderImage{url: c.URL, digest: c.Digest})
	}
	return a, nil
}

// unpack reads the artifact to its end, which verifies it. It keeps the image
// archives in the temporary directory.
func (o *Opener) unpack(ctx context.Context, path string, a *older) error {
	r, f, err := o.reader(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	known := len(a.images) > 0
	for {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			a.unpacked = true
			return nil
		}
		if err != nil {
			return err
		}
		if file.Name != artifact.ImagesPayload {
			continue
		}
		err = artifact.ReadImages(r, artifact.ReadOptions{SpoolDir: o.TempDir}, func(info artifact.ImageInfo, content io.Reader) error {
			switch {
			case info.Kind == artifact.KindShared, info.Variant > 1:
				return nil // the image was recorded with its first member
			case known && !a.has(info.Digest):
				return nil // a file
			}
			if !a.has(info.Digest) {
				a.images = append(a.images, olderImage{url: info.URLNew, digest: info.Digest})
			}
			file := ""
			if info.Kind == artifact.KindFull {
				var err error
				if file, err = o.keep(content); err != nil {
					return fmt.Errorf("%s: %w", info.URLNew, err)
				}
			}
			for i := range a.images { // a whole image comes last, after its deltas
				if img := &a.images[i]; img.digest == info.Digest {
					img.kind, img.file = info.Kind, file
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

func (a *older) has(d image.Digest) bool {
	return slices.ContainsFunc(a.images, func(img olderImage) bool { return img.digest == d })
}

// content is the digest that artifact.MadeOver describes.
func (a *older) content() digest.Digest {
	var list []string
	for _, img := range a.images {
		list = append(list, img.digest.Hex()+"\n")
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
