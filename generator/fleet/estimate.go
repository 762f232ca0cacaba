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

// A delta takes this share of the layers that changed: the mean of the image pairs in
// docs/benchmark.csv whose image has its size in docs/BENCHMARKS.md. Deltas differ a lot,
// 0.0003 to 0.068. The order of a plan does not depend much on it, because nearly all of what
// a delta saves is the whole image, whose size is known or estimated well.
const (
	deltaShare  = 0.022
	headerBytes = 2 << 10 // of a delta in its file
)

// Encoding takes a processor this time for each MiB of the layers that changed. What a large
// layer has is a base system, of which security updates change little; a smaller one is a
// program that changed throughout. Measured are 0.05 to 0.2 s and 0.15 to 0.65 s. The next
// release of a base system, which no size tells, takes up to 1 s.
const (
	programSeconds = 0.35
	systemSeconds  = 0.09
	systemLayer    = 48 << 20 // bytes
	leastEncoding  = 50 * time.Millisecond
)

// A delta that is made tells what it took by what its metadata says: encoding takes this time
// for 10^9 instructions of decoding it, and for 10^6 bytes of it (docs/BENCHMARKS.md).
const (
	secondsGiga = 0.5
	secondsMega = 6
)

// changed adds up the layers of an image that others lack, in bytes, and about what encoding
// a delta takes that makes them.
func changed(c *artifact.Component, others ...*artifact.Component) (n int64, encoding time.Duration) {
	have := map[image.Digest]bool{}
	for _, o := range others {
		for _, l := range o.Layers {
			have[l.DiffID] = true
		}
	}
	encoding = leastEncoding
	for _, l := range c.Layers {
		if have[l.DiffID] {
			continue
		}
		n += l.Size
		rate := programSeconds
		if l.Size > systemLayer {
			rate = systemSeconds
		}
		encoding += seconds(rate * float64(l.Size) / (1 << 20))
	}
	return n, encoding
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// samples are the deltas of an image that are made: their bytes, what encoding them took, and
// the layers that they make.
type samples struct {
	bytes, changed int64
	encoding       time.Duration
	n              int
}

// enough is how many deltas say what the others take. Fewer may be over the previous release
// alone, and older ones differ more.
const enough = 3

// add adds a delta over an image, or over several that a device has.
func (s *samples) add(v *artifact.Variant, changed int64) {
	if changed == 0 || v.Decode == 0 {
		return
	}
	s.n++
	s.changed += changed
	s.bytes += v.PayloadBytes + headerBytes
	s.encoding += seconds(secondsGiga*float64(v.Decode)/1e9 + secondsMega*float64(v.PayloadBytes)/1e6)
}

// estimate is the size of a delta over layers that changed, and what encoding it takes, which
// by their kind is about byKind.
func (s *samples) estimate(changed int64, byKind time.Duration) (size int64, encoding time.Duration) {
	size = headerBytes + int64(deltaShare*float64(changed))
	if s.n == 0 {
		return size, byKind
	}
	share := float64(changed) / float64(s.changed)
	encoding = time.Duration(share * float64(s.encoding))
	if s.n < enough {
		return size, max(encoding, byKind)
	}
	return headerBytes + int64(share*float64(s.bytes)), max(encoding, leastEncoding)
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
	n, _ := changed(c)
	return int64(wholeShare * float64(n)), false
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
