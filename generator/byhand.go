package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// DeltaOptions are the options of EncodeDelta and ApplyDelta.
type DeltaOptions struct {
	bases.Access // without TempDir: the output's directory, or that for temporary files if the output is not a file
	// FilesOnly makes a delta that needs old files alone, see encoder.Options.
	FilesOnly bool
}

// DeltaReport is the result of EncodeDelta.
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

// open opens the arguments of a delta that is written, or applied, to out.
func (o DeltaOptions) open(out string) (*bases.Arguments, error) {
	dir, err := write.Check(out)
	if err != nil {
		return nil, err
	}
	o.TempDir = cmp.Or(o.TempDir, dir)
	return bases.NewArguments(o.Access)
}

// EncodeDelta writes to out a delta that makes next out of the old ones. Each is
// an image (anything source.Parse reads, or a file that is an image archive or
// layout) or else any single file.
func EncodeDelta(ctx context.Context, old []string, next, out string, o DeltaOptions) (*DeltaReport, error) {
	h, err := o.open(out)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	target, err := h.Open(ctx, next)
	if err != nil {
		return nil, err
	}
	olds := make([]delta.Image, len(old))
	report := &DeltaReport{Path: out, New: target.Name, Old: old}
	for i, arg := range old {
		if olds[i], err = h.Open(ctx, arg); err != nil {
			return nil, err
		}
	}
	var r *encoder.Report
	err = write.To(ctx, out, h.Temp, func(w io.Writer) error {
		r, err = encoder.Encode(ctx, w, olds, target, encoder.Options{
			TempDir: h.Temp, FilesOnly: o.FilesOnly,
			Progress: func(done, total int64) { h.Tell("encode", next, done, total) },
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
	h, err := o.open(out)
	if err != nil {
		return err
	}
	defer h.Close()
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
		im, err := h.Open(ctx, arg)
		if err != nil {
			return err
		}
		if err := h.Add(c, im); err != nil {
			return err
		}
	}
	if err := h.Apply(ctx, c, r, deltaPath, out); err != nil {
		return err
	}
	return writeObjects(ctx, r.Header(), c, out, h.Temp)
}

// writeObjects puts the objects together: an image archive, or the one file.
func writeObjects(ctx context.Context, h delta.Header, c *bases.Contents, out, temp string) error {
	if len(h.Objects) == 0 {
		return errors.New("the delta makes nothing")
	}
	if strings.HasPrefix(h.Image, bases.FilePrefix) {
		first, err := c.Open(h.Objects[0].Digest)
		if err != nil {
			return err
		}
		defer first.Close()
		return write.To(ctx, out, temp, func(w io.Writer) error {
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
	return write.To(ctx, out, temp, func(w io.Writer) error { return image.WriteArchive(w, spec) })
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
