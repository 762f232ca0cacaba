package encoder

import (
	"io"
	"path"
	"sort"

	"github.com/mender-app/mender-app/delta/internal/codec"
)

// Similar files are found by their features: hashes of the last 32 bytes at places
// that depend only on the content, so that features survive insertions.

var gear [256]uint32

func init() {
	x := uint32(0x6d656e64)
	for i := range gear {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		gear[i] = x
	}
}

const (
	maxFeatureFiles = 8    // old files remembered for one feature
	maxFeaturesFile = 4096 // features of one file
)

// features returns the features of size bytes at off.
func features(r io.ReaderAt, off, size int64) ([]uint32, error) {
	mask := uint32(0x3f)
	for s := int64(1 << 14); s < size && mask < 1<<16; s <<= 1 {
		mask = mask<<1 | 1
	}
	var out []uint32
	seen := map[uint32]bool{}
	var h uint32
	b := make([]byte, codec.Chunk)
	for at := int64(0); at < size; {
		c := b[:min(codec.Chunk, size-at)]
		if err := readFull(r, c, off+at); err != nil {
			return nil, err
		}
		for i, x := range c {
			h = h<<1 + gear[x]
			// The low bits of the mask of a large file are those of a small one,
			// so that files of different sizes share features.
			if h>>15&mask == 0 && (i >= 32 || at > 0) && !seen[h] && len(out) < maxFeaturesFile {
				seen[h] = true
				out = append(out, h)
			}
		}
		at += int64(len(c))
	}
	return out, nil
}

// similar finds old files by features. It is built when first needed.
type similar struct {
	files map[uint32][]int32
}

func (x *index) similar(e *encoder) (*similar, error) {
	if x.sim != nil {
		return x.sim, nil
	}
	fs := make([][]uint32, len(x.files))
	err := each(e.ctx, e.opt.Workers, len(x.files), func(i int) (err error) {
		f := x.files[i]
		fs[i], err = features(e.old[f.obj].r, f.off, f.size)
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &similar{files: map[uint32][]int32{}}
	for i := range fs {
		for _, h := range fs[i] {
			if l := s.files[h]; len(l) < maxFeatureFiles {
				s.files[h] = append(l, int32(i))
			}
		}
	}
	x.sim = s
	return s, nil
}

// candidates returns the old files that a new one may be changed from, the most
// promising first: the reference, one of the same path, similar ones, one of the
// same name.
func (e *encoder) candidates(t *target, h *object) ([]*oldFile, error) {
	x := e.idx
	var out []*oldFile
	add := func(f *oldFile) {
		if f == nil || len(out) == 2 {
			return
		}
		for _, g := range out {
			if g == f {
				return
			}
		}
		out = append(out, f)
	}
	if t.Ref != nil {
		add(x.byPath[t.Ref.Base][t.Ref.Path])
	}
	if len(out) == 0 {
		for i := len(x.byPath) - 1; i >= 0; i-- {
			add(x.byPath[i][t.Path])
			if len(out) > 0 {
				break
			}
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	s, err := x.similar(e)
	if err != nil {
		return nil, err
	}
	fs, err := features(h.r, t.off, t.Size)
	if err != nil {
		return nil, err
	}
	votes := map[int32]int{}
	for _, f := range fs {
		for _, i := range s.files[f] {
			votes[i] += 8
		}
	}
	name := path.Base(t.Path)
	for i := range votes {
		if path.Base(x.files[i].path) == name {
			votes[i] += 4
		}
	}
	var ids []int32
	for i := range votes {
		ids = append(ids, i)
	}
	sort.Slice(ids, func(a, b int) bool {
		if votes[ids[a]] != votes[ids[b]] {
			return votes[ids[a]] > votes[ids[b]]
		}
		return ids[a] < ids[b]
	})
	for _, i := range ids[:min(len(ids), 2)] {
		if votes[i] >= 16 || votes[i]*16 >= 8*len(fs) {
			add(x.files[i])
		}
	}
	// A file of the same name and of about the size.
	var best *oldFile
	for _, f := range x.byName[name] {
		if f.size/8 <= t.Size && t.Size/8 <= f.size &&
			(best == nil || distance(f.size, t.Size) < distance(best.size, t.Size)) {
			best = f
		}
	}
	if len(out) == 0 {
		add(best)
	}
	return out, nil
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
