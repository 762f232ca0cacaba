package generator

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
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

// encoded are the deltas of a plan.
type encoded struct {
	images []*imageDeltas    // of the plan's images, in its order; nil for an image that has none
	files  [][]*encodedDelta // of the plan's files: one over each base
}

// remove removes the deltas that were not packed.
func (e *encoded) remove() {
	for _, i := range e.images {
		i.remove()
	}
	for _, list := range e.files {
		for _, d := range list {
			d.remove()
		}
	}
}

// imageDeltas are the deltas that make one image: a single one, or one for each of its
// bases.
type imageDeltas struct {
	deltas []*encodedDelta
	whole  *encodedDelta // over nothing, for devices without any of the bases; nil: there is none
	// shared makes the content that the deltas have in common; nil if they have
	// none. temp is the unpacked size of that content, in bytes.
	shared *encodedDelta
	temp   int64
}

// total is how many bytes the deltas over bases take in the artifact.
func (i *imageDeltas) total() (n int64) {
	if i.shared != nil {
		n = i.shared.size()
	}
	for _, d := range i.deltas {
		n += d.size()
	}
	return n
}

func (i *imageDeltas) remove() {
	if i == nil {
		return
	}
	i.shared.remove()
	i.whole.remove()
	for _, d := range i.deltas {
		d.remove()
	}
}

// deltaMaker makes the deltas of a plan with one thrift (see encoder.Options).
type deltaMaker struct {
	*run
	thrift   int
	progress *imageProgress // of the image whose deltas are made; nil for a file
}

// effort is how much is tried for a delta. The new content of a first installation is
// all that it has, and takes long: less is tried, unless somebody asks for more.
func (m *deltaMaker) effort(first bool) encoder.Effort {
	switch {
	case m.Images.Best:
		return encoder.Best
	case m.Images.Coding == Fast && first:
		return encoder.Stored
	case m.Images.Coding == Fast || first:
		return encoder.Quick
	}
	return encoder.Standard
}

// encodePlan makes all deltas of the plan.
func (r *run) encodePlan(ctx context.Context, p *plan, thrift int) (*encoded, error) {
	m := &deltaMaker{run: r, thrift: thrift}
	made := &encoded{images: make([]*imageDeltas, len(p.images)), files: make([][]*encodedDelta, len(p.files))}
	if err := m.eachImage(ctx, p, made); err != nil {
		made.remove()
		return nil, err
	}
	for i := range p.files {
		var err error
		if made.files[i], err = m.file(ctx, &p.files[i]); err != nil {
			made.remove()
			return nil, fmt.Errorf("%s: %w", p.files[i].URL, err)
		}
	}
	return made, nil
}

// imageProcessors is how many processors the deltas of one image keep busy, and mostImages
// for how many images there is memory at a time.
const (
	imageProcessors = 2
	mostImages      = 4
)

// eachImage makes the deltas of all images, several at a time. Each builds on the content
// of others at most, not on their deltas.
func (m *deltaMaker) eachImage(ctx context.Context, p *plan, made *encoded) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := newPlanProgress(m.run, p)
	slots := make(chan struct{}, min(max(runtime.GOMAXPROCS(0)/imageProcessors, 1), mostImages))
	var wg sync.WaitGroup
	for i := range p.images {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			one := *m
			one.progress = all.image(i)
			var err error
			if made.images[i], err = one.image(ctx, &p.images[i]); err != nil {
				cancel(fmt.Errorf("%s: %w", p.images[i].URL, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// image makes the deltas of an image; nil if it needs none.
func (m *deltaMaker) image(ctx context.Context, img *plannedImage) (*imageDeltas, error) {
	whole := func(what string) (*encodedDelta, error) {
		return m.encode(ctx, what, len(img.bases) == 0 || img.format == artifact.FormatVariants, deltaImages(img.known), bases.DeltaImage(img.URL, img.Image))
	}
	switch {
	case img.sameAs >= 0, img.format == artifact.FormatFull:
		return nil, nil
	case img.format == artifact.FormatDelta:
		d, err := whole(img.URL)
		if err != nil {
			return nil, err
		}
		return &imageDeltas{deltas: []*encodedDelta{d}}, nil
	}
	made, err := m.overBases(ctx, img)
	if err != nil || !img.whole || m.Images.Coding != Coded {
		return made, err
	}
	if made.whole, err = whole(img.URL + ", whole"); err != nil {
		made.remove()
		return nil, err
	}
	return made, nil
}

// encode makes a delta in the temporary directory. what is its name for Progress; first says
// that all of it is new content.
func (m *deltaMaker) encode(ctx context.Context, what string, first bool, olds []delta.Image, next delta.Image) (*encodedDelta, error) {
	o := encoder.Options{
		TempDir: m.temp, FilesOnly: m.Images.FilesOnly, Thrift: m.thrift, Effort: m.effort(first), NoDeflate: m.lacks(delta.FeatureDeflate), NoGo: m.lacks(delta.FeatureGo), NoFar: m.lacks(delta.FeatureFar), NoUnwind: m.lacks(delta.FeatureUnwind), NoApart: m.lacks(delta.FeatureApart), NoShow: m.lacks(delta.FeatureShow), NoParts: m.lacks(delta.FeatureParts),
		Sums:     m.byteCost > 0 && !m.lacks(delta.FeatureSums),
		Progress: m.encoding(what, olds, next),
	}
	if !m.lacks(delta.FeaturePacked) {
		o.ByteCost = m.byteCost
	}
	hex := ""
	if m.cache != nil && !omitted(olds, next) {
		var err error
		if hex, err = deltaHex(olds, next, o); err != nil {
			m.noCache(err)
		} else if e := m.cachedDelta(hex, next); e != nil {
			return e, nil
		}
	}
	f, err := os.CreateTemp(m.temp, "delta-*")
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	e := &encodedDelta{path: f.Name()}
	e.report, err = encoder.Encode(ctx, f, olds, next, o)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &write.Error{Err: cerr}
	}
	if err != nil {
		e.remove()
		return nil, err
	}
	if hex != "" {
		m.keepDelta(hex, e)
	}
	return e, nil
}

// omitted reports whether old images have all of an image: its delta is nothing but a
// header.
func omitted(olds []delta.Image, next delta.Image) bool {
	have := map[delta.Digest]bool{}
	for _, old := range olds {
		for _, o := range old.Objects {
			have[o.Digest] = true
		}
	}
	return !slices.ContainsFunc(next.Objects, func(o delta.Object) bool { return !have[o.Digest] })
}

func deltaImages(list []*source.Found) []delta.Image {
	images := make([]delta.Image, len(list))
	for i, f := range list {
		images[i] = bases.DeltaImage(f.URL, f.Image)
	}
	return images
}
