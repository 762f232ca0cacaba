package encoder

import (
	"crypto/sha256"
	"io"
	"path"
	"sort"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// oldFile is a file that the decoder can read.
type oldFile struct {
	obj  int // in encoder.old
	path string
	off  int64
	size int64
	sum  [32]byte
}

// source names the file in a plan.
func (f *oldFile) source() script.Source { return script.Source{Base: f.obj, Path: f.path} }

// index finds old files by path, name, size and content.
type index struct {
	files  []*oldFile
	byPath []map[string]*oldFile // by old object
	sizes  map[int64]bool        // of old files
	bySum  map[[32]byte][]*oldFile
	byName map[string][]*oldFile
	sim    *similar
}

func newIndex(e *encoder) (*index, error) {
	x := &index{sizes: map[int64]bool{}, bySum: map[[32]byte][]*oldFile{}, byName: map[string][]*oldFile{}}
	for i, o := range e.old {
		paths := map[string]*oldFile{}
		if o.Kind == delta.Blob {
			paths[""] = &oldFile{obj: i, size: o.Size}
		}
		for p, j := range readable(o.members) {
			m := &o.members[j]
			paths[p] = &oldFile{obj: i, path: p, off: m.Off, size: m.Size}
		}
		names := make([]string, 0, len(paths))
		for p := range paths {
			names = append(names, p)
		}
		sort.Strings(names)
		for _, p := range names {
			f := paths[p]
			x.files = append(x.files, f)
			x.byName[path.Base(p)] = append(x.byName[path.Base(p)], f)
		}
		x.byPath = append(x.byPath, paths)
	}
	// Only files that have a new file's size can be the same.
	want := map[int64]bool{}
	for _, h := range e.new {
		if h == nil {
			continue
		}
		want[h.Size] = true
		for i := range h.members {
			want[h.members[i].Size] = true
		}
	}
	err := each(e.ctx, e.opt.Workers, len(x.files), func(i int) (err error) {
		f := x.files[i]
		if want[f.size] {
			f.sum, err = hashSection(e.old[f.obj].r, f.off, f.size)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, f := range x.files {
		if want[f.size] {
			x.sizes[f.size] = true
			x.bySum[f.sum] = append(x.bySum[f.sum], f)
		}
	}
	return x, nil
}

// exact returns an old file with the content, preferably the reference's.
func (x *index) exact(t *target, sum [32]byte) *oldFile {
	if !x.sizes[t.Size] {
		return nil
	}
	var best *oldFile
	rank := func(f *oldFile) int {
		switch {
		case t.Ref != nil && *t.Ref == f.source():
			return 3
		case f.path == t.Path:
			return 2
		case path.Base(f.path) == path.Base(t.Path):
			return 1
		}
		return 0
	}
	for _, f := range x.bySum[sum] {
		if best == nil || rank(f) > rank(best) {
			best = f
		}
	}
	return best
}

func hashSection(r io.ReaderAt, off, size int64) (sum [32]byte, err error) {
	h := sha256.New()
	// Most files are small: clearing a large buffer would take longer than hashing them.
	b := make([]byte, min(max(size, 1), 256<<10))
	if _, err := io.CopyBuffer(h, io.NewSectionReader(r, off, size), b); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}
