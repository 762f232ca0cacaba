package fleet

import (
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

// What nobody has made yet is estimated from the layers that a device lacks, because the
// metadata of the releases has their sizes: no content is read. A whole image takes this
// share of its layers: the median of the first installations in docs/BENCHMARKS.md, which
// lie between 0.15 and 0.26. Of whole images in gzip it is that table's as well.
const (
	wholeShare = 0.19
	gzipShare  = 0.35
)

// A delta takes this share of the layers that changed, and encoding this time of one
// processor for each MiB of them: the means of the image pairs in docs/benchmark.csv whose
// image has its size in docs/BENCHMARKS.md. Deltas differ a lot: 0.0003 to 0.068, and 0.07
// to 0.65 s. The order of a plan does not depend much on it, because nearly all of what a
// delta saves is the whole image, whose size is known or estimated well.
const (
	deltaShare    = 0.022
	secondsMiB    = 0.35
	headerBytes   = 2 << 10 // of a delta in its file
	leastEncoding = 50 * time.Millisecond
)

// changed adds up the layers of an image that others lack, in bytes.
func changed(c *artifact.Component, others ...*artifact.Component) (n int64) {
	have := map[image.Digest]bool{}
	for _, o := range others {
		for _, l := range o.Layers {
			have[l.DiffID] = true
		}
	}
	for _, l := range c.Layers {
		if !have[l.DiffID] {
			n += l.Size
		}
	}
	return n
}

// estimate is the size of a delta over layers that changed, and what encoding it takes.
func estimate(changed int64) (size int64, encoding time.Duration) {
	size = headerBytes + int64(deltaShare*float64(changed))
	return size, leastEncoding + time.Duration(secondsMiB*float64(changed)/(1<<20)*float64(time.Second))
}

// whole is the form of an image that needs no base, and about what a device fetches of it;
// ok is false if the artifact has none.
func whole(c *artifact.Component) (bytes int64, ok bool) {
	v := artifact.Variant{Format: c.Format, Bases: c.Bases, PayloadBytes: c.PayloadBytes}
	if n := len(c.Variants); n > 0 {
		v = c.Variants[n-1]
	}
	switch {
	case v.Format == artifact.FormatFull:
		return int64(gzipShare * float64(v.PayloadBytes)), true
	case v.Format == artifact.FormatDelta && len(v.Bases) == 0:
		return v.PayloadBytes + headerBytes, true
	}
	return int64(wholeShare * float64(changed(c))), false
}

// ready is the size of a delta over a base that the artifact has itself; ok is false if it
// has none.
func ready(c *artifact.Component, base digest.Digest) (bytes int64, ok bool) {
	for _, v := range c.Variants {
		if len(v.Bases) == 1 && v.Bases[0].Digest == base {
			return v.PayloadBytes + headerBytes, true
		}
	}
	return 0, false
}
