package generator

import (
	"context"
	"os"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/source"
)

// encodedDelta is a delta in a temporary file.
type encodedDelta struct {
	path   string
	report *encoder.Report
}

func (e *encodedDelta) size() int64 { return e.report.Size }

// decode is about how many instructions decoding takes.
func (e *encodedDelta) decode() int64 { return e.report.Work.Instructions() }

// remove removes the file; it does nothing to a delta that was not made.
func (e *encodedDelta) remove() {
	if e != nil {
		os.Remove(e.path)
	}
}

// encode makes a delta in the temporary directory. what is its name for Progress.
func (r *run) encode(ctx context.Context, what string, olds []delta.Image, next delta.Image) (*encodedDelta, error) {
	o := encoder.Options{
		TempDir: r.temp, FilesOnly: r.Images.FilesOnly, Thrift: r.thrift, NoDeflate: r.lacks(delta.FeatureDeflate), NoGo: r.lacks(delta.FeatureGo), NoFar: r.lacks(delta.FeatureFar),
		Progress: func(done, total int64) { r.tell("encode", what, done, total) },
	}
	hex := ""
	if r.cache != nil {
		var err error
		if hex, err = deltaHex(olds, next, o); err != nil {
			r.noCache(err)
		} else if e, err := r.cachedDelta(ctx, hex, olds, next); e != nil || err != nil {
			return e, err
		}
	}
	f, err := os.CreateTemp(r.temp, "delta-*")
	if err != nil {
		return nil, &WriteError{Err: err}
	}
	e := &encodedDelta{path: f.Name()}
	e.report, err = encoder.Encode(ctx, f, olds, next, o)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &WriteError{Err: cerr}
	}
	if err != nil {
		e.remove()
		return nil, err
	}
	if hex != "" {
		r.keepDelta(hex, e)
	}
	return e, nil
}

func deltaImages(list []*source.Found) []delta.Image {
	images := make([]delta.Image, len(list))
	for i, f := range list {
		images[i] = bases.DeltaImage(f.URL, f.Image)
	}
	return images
}
