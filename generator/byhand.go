package generator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/output"
	"github.com/mender-app/mender-app/generator/source"
)

// DeltaOptions are the options of EncodeDelta and ApplyDelta.
type DeltaOptions struct {
	Platform image.Platform // of images that have several; the zero Platform takes what there is
	TempDir  string         // "" is the output's directory
	// FilesOnly makes a delta that needs old files alone, see encoder.Options.
	FilesOnly bool
	Sources   source.Config
	Progress  func(Event)
}

// DeltaReport says what EncodeDelta did.
type DeltaReport struct {
	Path    string        `json:"path"`
	Bytes   int64         `json:"bytes"`
	New     string        `json:"new"`
	Old     []string      `json:"old"`
	Whole   int64         `json:"new_bytes"` // of all objects, uncompressed
	Memory  int64         `json:"memory_bytes"`
	Temp    int64         `json:"temp_bytes"`
	Objects []DeltaObject `json:"objects"`
}

// DeltaObject is one object of a delta: an image's config or layer, or a file.
type DeltaObject struct {
	Digest   digest.Digest    `json:"digest"`
	Kind     string           `json:"kind"`
	Size     int64            `json:"size"`
	Encoding string           `json:"encoding"`
	Bytes    int64            `json:"bytes"` // -1: not known from the delta alone
	Streams  map[string]int64 `json:"streams,omitempty"`
	Files    map[string]int   `json:"files,omitempty"`
}

// filePrefix marks the name of a delta that makes a single file, not an image.
const filePrefix = "file:"

// EncodeDelta writes to out a delta that makes next out of the old ones. Each is
// an image (anything source.Parse reads, or a file that is an image archive or
// layout) or else any single file.
func EncodeDelta(ctx context.Context, old []string, next, out string, o DeltaOptions) (*DeltaReport, error) {
	h, err := newByHand(ctx, out, o)
	if err != nil {
		return nil, err
	}
	defer h.close()
	target, err := h.open(next)
	if err != nil {
		return nil, err
	}
	olds := make([]delta.Image, len(old))
	report := &DeltaReport{Path: out, New: target.Name, Old: old}
	for i, arg := range old {
		if olds[i], err = h.open(arg); err != nil {
			return nil, err
		}
	}
	var r *encoder.Report
	err = output.Replace(out, func(w io.Writer) error {
		r, err = encoder.Encode(ctx, w, olds, target, encoder.Options{
			TempDir: h.temp, FilesOnly: o.FilesOnly,
			Progress: func(done, total int64) { h.tell("encode", next, done, total) },
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	report.Bytes, report.Memory, report.Temp = r.Size, r.Header.Memory, r.Header.Temp
	for _, obj := range r.Objects {
		report.Whole += obj.Size
		report.Objects = append(report.Objects, DeltaObject{
			Digest: obj.Digest, Kind: string(obj.Kind), Size: obj.Size, Encoding: string(obj.Encoding),
			Bytes: obj.Total(), Streams: obj.Bytes, Files: obj.Files,
		})
	}
	return report, nil
}

// ApplyDelta makes the new image (as an archive that docker load takes) or file
// at out, with the decoder of the device.
func ApplyDelta(ctx context.Context, old []string, deltaPath, out string, o DeltaOptions) error {
	h, err := newByHand(ctx, out, o)
	if err != nil {
		return err
	}
	defer h.close()
	f, err := os.Open(deltaPath)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := decoder.New(f)
	if err != nil {
		return fmt.Errorf("%s: %w", deltaPath, err)
	}
	c := bases.NewContents()
	for _, arg := range old {
		im, err := h.open(arg)
		if err != nil {
			return err
		}
		if err := h.b.Add(c, im); err != nil {
			return err
		}
	}
	if err := h.b.Apply(ctx, c, r, deltaPath, out); err != nil {
		return err
	}
	return writeObjects(r.Header(), c, out)
}

// writeObjects puts the objects together: an image archive, or the one file.
func writeObjects(h delta.Header, c *bases.Contents, out string) error {
	if len(h.Objects) == 0 {
		return errors.New("the delta makes nothing")
	}
	if strings.HasPrefix(h.Image, filePrefix) {
		first, err := c.Open(h.Objects[0].Digest)
		if err != nil {
			return err
		}
		defer first.Close()
		return output.Replace(out, func(w io.Writer) error {
			_, err := io.Copy(w, first)
			return err
		})
	}
	img, err := c.MadeImage(h)
	if err != nil {
		return err
	}
	spec := image.ArchiveSpec{Image: img}
	if source.CheckURL(h.Image) == nil {
		spec.RepoTags = []string{tagged(h.Image)}
	}
	return output.Replace(out, func(w io.Writer) error { return image.WriteArchive(w, spec) })
}

// ShowDelta returns what a delta says about itself.
func ShowDelta(path string) (*delta.Header, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	r, err := decoder.New(f)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	h := r.Header()
	return &h, info.Size(), nil
}

// byHand opens the arguments of the delta commands.
type byHand struct {
	ctx    context.Context
	o      DeltaOptions
	opener *source.Opener
	temp   string
	b      *bases.Builder
	older  *bases.Chain
}

func newByHand(ctx context.Context, out string, o DeltaOptions) (*byHand, error) {
	if o.TempDir == "" {
		o.TempDir = filepath.Dir(out)
	}
	temp, err := os.MkdirTemp(o.TempDir, ".app-gen-*")
	if err != nil {
		return nil, &WriteError{Err: err}
	}
	h := &byHand{ctx: ctx, o: o, temp: temp}
	h.opener = &source.Opener{Platform: o.Platform, TempDir: temp, Config: o.Sources}
	h.opener.Progress = func(what string, done, total int64) { h.tell("fetch", what, done, total) }
	if h.older, err = newChain(ctx, temp, h.tell); err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	h.opener.Rebuild = h.older.Image
	h.b = &bases.Builder{Temp: temp, Local: h.local, Tell: h.tell}
	return h, nil
}

func (h *byHand) tell(stage, what string, done, total int64) {
	if h.o.Progress != nil {
		h.o.Progress(Event{stage, what, done, total})
	}
}

func (h *byHand) close() {
	h.b.Close()
	h.older.Builder.Close()
	h.opener.Close()
	os.RemoveAll(h.temp)
}

// open finds the objects of an argument, with layers as uncompressed files.
func (h *byHand) open(arg string) (delta.Image, error) {
	info, err := os.Stat(arg)
	if err == nil {
		if im, err := h.archive(arg); err == nil {
			return im, nil
		} else if info.IsDir() || !errors.Is(err, image.ErrFormat) {
			return delta.Image{}, fmt.Errorf("%s: %w", arg, err)
		}
		return h.single(arg)
	}
	spec, err := source.Parse(arg)
	if err != nil {
		return delta.Image{}, err
	}
	if spec.URL == "" && spec.Kind != source.Registry && spec.Kind != source.Daemon {
		spec.URL = "image" // the name does not matter here
		found, err := h.opener.Open(h.ctx, spec, "")
		if err != nil {
			return delta.Image{}, err
		}
		if name := firstName(found.Image.Tags); name != "" {
			found.URL = name
		}
		return h.keep(found.URL, found.Image)
	}
	found, err := h.opener.Open(h.ctx, spec, "")
	if err != nil {
		return delta.Image{}, err
	}
	return h.keep(found.URL, found.Image)
}

func firstName(tags []string) string {
	for _, t := range tags {
		if source.CheckURL(t) == nil {
			return t
		}
	}
	return ""
}

func (h *byHand) archive(path string) (delta.Image, error) {
	a, err := image.OpenArchive(path)
	if err != nil {
		return delta.Image{}, err
	}
	defer a.Close()
	img, err := a.Select(h.o.Platform)
	if err != nil {
		return delta.Image{}, err
	}
	name := firstName(img.Tags)
	if name == "" {
		name = "image"
	}
	return h.keep(name, img)
}

func (h *byHand) keep(name string, img *image.Image) (delta.Image, error) {
	local, err := h.local(name, img)
	if err != nil {
		return delta.Image{}, err
	}
	return bases.DeltaImage(name, local), nil
}

// local verifies the layers of an image and returns a copy whose layers are
// uncompressed files.
func (h *byHand) local(name string, img *image.Image) (*image.Image, error) {
	return source.Keep(h.ctx, h.temp, img, func(done int64) { h.tell("read", name, done, -1) })
}

// single makes one object of any file. The encoder looks into a tar's members.
func (h *byHand) single(path string) (delta.Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return delta.Image{}, err
	}
	defer f.Close()
	sum, size, err := digestOf(f)
	if err != nil {
		return delta.Image{}, err
	}
	kind := delta.Blob
	magic := make([]byte, 5)
	if _, err := f.ReadAt(magic, 257); err == nil && string(magic) == "ustar" {
		kind = delta.Tar
	}
	return delta.Image{Name: filePrefix + filepath.Base(path), Objects: []delta.Object{{
		Digest: sum, Size: size, Kind: kind, Open: func() (io.ReadCloser, error) { return os.Open(path) },
	}}}, nil
}

// digestOf reads a file from its start.
func digestOf(f *os.File) (delta.Digest, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return "", 0, err
	}
	return digest.OfHash(h), n, nil
}

// base adds what --base names: an artifact with all its images, or one image.
func (h *byHand) base(ctx context.Context, arg string, c *bases.Contents) error {
	path := strings.TrimPrefix(arg, string(source.Artifact)+":")
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && strings.HasSuffix(path, ".mender") {
		rel, err := h.b.Read(ctx, path)
		if err != nil {
			return err
		}
		for _, comp := range rel.Meta.ImageComponents() {
			if _, err := h.b.Image(ctx, rel, comp, c); err != nil {
				var src *source.Error
				if !errors.As(err, &src) { // missing content is reported where it is needed
					return err
				}
			}
		}
		return nil
	}
	im, err := h.open(arg)
	if err != nil {
		return err
	}
	if err := h.b.Add(c, im); err != nil {
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
