package bases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// FilePrefix marks the name of a delta that makes a single file, not an image.
const FilePrefix = "file:"

// Access says how to find the images that a person names, and whom to tell.
type Access struct {
	Platform image.Platform // of images that have several; the zero Platform takes what there is
	TempDir  string         // for what is fetched and made; it must be given
	Sources  source.Config
	Progress func(source.Event) // may be called from several goroutines; may be nil
}

// Arguments opens what a person names to a command: images, older artifacts and
// single files.
type Arguments struct {
	*Builder
	platform image.Platform
	opener   *source.Opener
	older    *Chain
}

// NewArguments makes a directory for temporary files, which Close removes.
func NewArguments(access Access) (*Arguments, error) {
	temp, err := scratch.Dir(access.TempDir, scratch.HostPrefix)
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	tell := func(stage, what string, done, total int64) {
		if access.Progress != nil {
			access.Progress(source.Event{Stage: stage, What: what, Done: done, Total: total})
		}
	}
	older, err := NewChain(temp, tell)
	if err != nil {
		return nil, errors.Join(err, scratch.Remove(temp))
	}
	opener := &source.Opener{Platform: access.Platform, TempDir: temp, Config: access.Sources, Rebuild: older.Image}
	opener.Progress = func(what string, done, total int64) { tell("fetch", what, done, total) }
	return &Arguments{&Builder{Temp: temp, Tell: tell}, access.Platform, opener, older}, nil
}

// Close removes everything that was opened. None of it can be read afterwards.
func (a *Arguments) Close() {
	a.Builder.Close()
	a.older.Builder.Close()
	a.opener.Close()
	scratch.Remove(a.Temp)
}

// Open finds the objects of an argument, with layers as uncompressed files.
func (a *Arguments) Open(ctx context.Context, arg string) (delta.Image, error) {
	info, err := os.Stat(arg)
	if err == nil {
		if im, err := a.archive(ctx, arg); err == nil {
			return im, nil
		} else if info.IsDir() || !errors.Is(err, image.ErrFormat) {
			return delta.Image{}, fmt.Errorf("%s: %w", arg, err)
		}
		return a.single(arg)
	}
	spec, err := source.Parse(arg)
	if err != nil {
		return delta.Image{}, err
	}
	if spec.URL == "" && spec.Kind != source.Registry && spec.Kind != source.Daemon {
		spec.URL = "image" // the name does not matter here
		found, err := a.opener.Open(ctx, spec, "")
		if err != nil {
			return delta.Image{}, err
		}
		if name := firstName(found.Image.Tags); name != "" {
			found.URL = name
		}
		return a.keep(ctx, found.URL, found.Image)
	}
	found, err := a.opener.Open(ctx, spec, "")
	if err != nil {
		return delta.Image{}, err
	}
	return a.keep(ctx, found.URL, found.Image)
}

func firstName(tags []string) string {
	for _, t := range tags {
		if source.CheckURL(t) == nil {
			return t
		}
	}
	return ""
}

func (a *Arguments) archive(ctx context.Context, path string) (delta.Image, error) {
	archive, err := image.OpenOnHost(path)
	if err != nil {
		return delta.Image{}, err
	}
	defer archive.Close()
	img, err := archive.Select(a.platform)
	if err != nil {
		return delta.Image{}, err
	}
	if _, err := image.ParseConfig(img.Config); err != nil {
		return delta.Image{}, err
	}
	name := firstName(img.Tags)
	if name == "" {
		name = "image"
	}
	return a.keep(ctx, name, img)
}

func (a *Arguments) keep(ctx context.Context, name string, img *image.Image) (delta.Image, error) {
	local, err := a.local(ctx, name, img)
	if err != nil {
		return delta.Image{}, err
	}
	return DeltaImage(name, local), nil
}

// single makes one object of any file. The encoder looks into a tar's members.
func (a *Arguments) single(path string) (delta.Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return delta.Image{}, err
	}
	defer f.Close()
	sum, size, err := digest.OfReader(io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return delta.Image{}, err
	}
	kind := delta.Blob
	magic := make([]byte, 5)
	if _, err := f.ReadAt(magic, 257); err == nil && string(magic) == "ustar" {
		kind = delta.Tar
	}
	return delta.Image{Name: FilePrefix + filepath.Base(path), Objects: []delta.Object{{
		Digest: sum, Size: size, Kind: kind, Open: func() (io.ReadCloser, error) { return os.Open(path) },
	}}}, nil
}

// AddTo adds to c what an argument names: an artifact with all its images, or one image.
func (a *Arguments) AddTo(ctx context.Context, c *Contents, arg string) error {
	path := strings.TrimPrefix(arg, string(source.Artifact)+":")
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && strings.HasSuffix(path, ".mender") {
		rel, err := a.Read(ctx, path)
		if err != nil {
			return err
		}
		for _, comp := range rel.Meta.ImageComponents() {
			if _, err := a.Image(ctx, rel, comp, c); err != nil {
				var src *source.Error
				if !errors.As(err, &src) { // missing content is reported where it is needed
					return err
				}
			}
		}
		return nil
	}
	im, err := a.Open(ctx, arg)
	if err != nil {
		return err
	}
	if err := a.Add(c, im); err != nil {
		return err
	}
	header := delta.Header{}
	for i, o := range im.Objects {
		header.Objects = append(header.Objects, delta.ObjectInfo{Index: i, Digest: o.Digest, Size: o.Size, Kind: o.Kind})
	}
	img, err := c.MadeImage(header)
	if err != nil {
		return fmt.Errorf("%s: %w", arg, err)
	}
	c.Images[img.ConfigDigest] = img
	return nil
}
