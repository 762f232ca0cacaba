// Package imagedelta applies the delta of an image for a sub-module that cannot do so:
// it makes an image archive from the delta and the archives that SAVE wrote. The
// sub-module then gets a full image, which docker load would take.
//
// It uses the code of the sub-modules that can (submodules/imagestore), with files in
// place of an engine: the announced sizes bound it, and each layer is compared with
// its digest. A delta is read before it can be verified, so the update module runs
// all of this in a process of its own that has given up its rights.
package imagedelta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Request is a delta to apply. All paths are absolute.
type Request struct {
	Component submodules.Component // the new image, as announced
	Platform  string               // of the release
	Tags      []string             // the names that the archive gives the image
	Archives  []string             // of older images, written by SAVE
	Delta     string               // the delta, possibly after shared content
	New       string               // the archive to write, in Temp; not synced
	Temp      string               // a directory for temporary files
	MaxFile   int64                // maximum size of any file in bytes
}

// Apply writes the archive of the new image. Its errors are marked like those of
// LOAD: submodules.ErrContent for a delta that does not make the announced image,
// submodules.ErrBase for a missing or damaged older image.
func Apply(ctx context.Context, q Request) error {
	want, err := imagestore.ParseIdentity(q.Component)
	if err != nil {
		return err
	}
	platform, err := image.ParsePlatform(q.Platform)
	if err != nil {
		return err
	}
	content, err := os.Open(q.Delta)
	if err != nil {
		return err
	}
	defer content.Close()
	in := imagestore.LoadRequest{
		Want: want, Announced: q.Component.Announced, Platform: platform,
		TempDir: q.Temp, Log: func(string, ...any) {},
	}
	if len(q.Component.Bases) > 0 {
		in.Current, in.Base = q.Component.Bases[0].URL, q.Component.Bases[0].DiffIDs
	}
	_, _, err = imagestore.Receive(ctx, &files{q: q}, content, in, func(image.Digest) []string { return q.Tags })
	return err
}

// files is an engine for imagestore.Receive: its old content is in archives, and it
// writes a loaded image to an archive.
type files struct{ q Request }

// Present implements imagestore.Target. Nothing is present: the archive is whole.
func (f *files) Present(context.Context, []image.Digest) (map[image.Digest]image.Descriptor, error) {
	return nil, nil
}

// Has implements imagestore.Target.
func (f *files) Has(context.Context, imagestore.Identity) (bool, error) { return false, nil }

// Load implements imagestore.Target.
func (f *files) Load(_ context.Context, archive io.Reader) error {
	w, err := os.OpenFile(f.q.New, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, archive); err != nil {
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

// Room implements imagestore.Target. The caller has checked the announced sizes.
func (f *files) Room(context.Context) (int64, error) { return imagestore.NoRoomLimit, nil }

// Save implements imagestore.Target. Only the shell reference's deltas need it.
func (f *files) Save(_ context.Context, ref string) (*os.File, int64, error) {
	return nil, 0, submodules.Mark(fmt.Errorf("no archive of %s", ref), submodules.ErrNotFound)
}

// Old implements imagestore.Target.
func (f *files) Old(context.Context, []image.Digest) (imagestore.Old, error) {
	a := &archives{temp: f.q.Temp, layers: map[image.Digest]*imagestore.SavedLayer{}}
	for _, path := range f.q.Archives {
		opened, err := image.OpenArchive(path)
		if err != nil {
			// Layers missing because of this are reported with the reason.
			a.unreadable = errors.Join(a.unreadable, err)
			continue
		}
		a.opened = append(a.opened, opened)
	}
	return a, nil
}

// archives are the old content: the images in some archives.
type archives struct {
	temp       string
	opened     []*image.Archive
	unreadable error
	layers     map[image.Digest]*imagestore.SavedLayer
}

// Close implements imagestore.Old.
func (a *archives) Close() error {
	for _, l := range a.layers {
		_ = l.Close()
	}
	for _, opened := range a.opened {
		_ = opened.Close()
	}
	return nil
}

// missing is the error for an object that no archive has.
func (a *archives) missing(d image.Digest) error {
	if a.unreadable != nil {
		return fmt.Errorf("%s: %w: %w", d, delta.ErrNoObject, a.unreadable)
	}
	return fmt.Errorf("%s: %w", d, delta.ErrNoObject)
}

// images calls each for each image until it returns true.
func (a *archives) images(each func(*image.Image) bool) bool {
	return slices.ContainsFunc(a.opened, func(o *image.Archive) bool { return slices.ContainsFunc(o.Images(), each) })
}

// layer returns a layer. A layer compressed in the archive is unpacked into an
// unlinked file.
func (a *archives) layer(d image.Digest) (*imagestore.SavedLayer, error) {
	if l := a.layers[d]; l != nil {
		return l, nil
	}
	var found *image.Layer
	a.images(func(img *image.Image) bool {
		i := slices.IndexFunc(img.Layers, func(l image.Layer) bool { return l.DiffID == d && l.Open != nil })
		if i >= 0 {
			found = &img.Layers[i]
		}
		return i >= 0
	})
	if found == nil {
		return nil, a.missing(d)
	}
	tar, err := found.Open()
	if err != nil {
		return nil, err
	}
	if plain, ok := tar.(interface {
		io.ReaderAt
		io.Closer
	}); ok {
		a.layers[d] = imagestore.NewSavedLayer(d, plain, found.Size)
		return a.layers[d], nil
	}
	defer tar.Close()
	f, size, err := imagestore.Spool(a.temp, tar)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", d, err)
	}
	a.layers[d] = imagestore.NewSavedLayer(d, f, size)
	return a.layers[d], nil
}

// OpenFile implements delta.Old.
func (a *archives) OpenFile(_ context.Context, in delta.Digest, name string) (delta.File, error) {
	if name != "" {
		l, err := a.layer(in)
		if err != nil {
			return nil, err
		}
		return l.OpenFile(name)
	}
	var config []byte
	if !a.images(func(img *image.Image) bool { config = img.Config; return img.ConfigDigest == in }) {
		return nil, a.missing(in)
	}
	return imagestore.NewBlob(config), nil
}

// Headers implements delta.Old.
func (a *archives) Headers(_ context.Context, in delta.Digest) (delta.HeaderReader, error) {
	l, err := a.layer(in)
	if err != nil {
		return nil, err
	}
	return l.Headers()
}

// Layer implements imagestore.Old.
func (a *archives) Layer(_ context.Context, d image.Digest) (io.ReadCloser, int64, error) {
	l, err := a.layer(d)
	if err != nil {
		return nil, 0, err
	}
	return l.Tar(), l.Size(), nil
}
