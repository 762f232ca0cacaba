package delta

import (
	"crypto/sha256"
	"io"
	"path"
	"sort"
)

// oldFile is a file that the decoder can read.
type oldFile struct {
	obj  int // in encoder.old
	path string
	off  int64
	size int64
	sum  [32]byte
	pos  int // member's index in its tar
}

// index finds old files by what is known of them.
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
		if o.Kind == Blob {
			paths[""] = &oldFile{obj: i, size: o.Size}
		}
		for j := range o.members {
			m := &o.members[j]
			if m.path == "" {
				continue
			}
			// What a store has under a path is the last member of that name.
			delete(paths, m.path)
			if m.file() && m.size > 0 {
				paths[m.path] = &oldFile{obj: i, path: m.path, off: m.off, size: m.size, pos: j}
			}
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
			want[h.members[i].size] = true
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

// exact returns an old file with the content, the reference's if it has it.
func (x *index) exact(en *entry, sum [32]byte) *oldFile {
	if !x.sizes[en.size] {
		return nil
	}
	var best *oldFile
	rank := func(f *oldFile) int {
		switch {
		case en.ref != nil && en.ref.base == f.obj && en.ref.path == f.path:
			return 3
		case f.path == en.path:
			return 2
		case path.Base(f.path) == path.Base(en.path):
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
	if _, err := io.CopyBuffer(h, io.NewSectionReader(r, off, size), make([]byte, 256<<10)); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// planRefs pairs new members with old ones of the same path, so that each old
// tar's headers are passed once, forward.
func (e *encoder) planRefs(h *hostObject, p *objectPlan) {
	type tar struct {
		obj   int
		pos   map[string]int
		share int
	}
	var tars []tar
	for i, o := range e.old {
		if o.Kind != Tar {
			continue
		}
		t := tar{obj: i, pos: map[string]int{}}
		for j := range o.members {
			if o.members[j].odd {
				break // stores may cut such members otherwise
			}
			t.pos[o.members[j].path] = j
		}
		for j := range h.members {
			if _, ok := t.pos[h.members[j].path]; ok {
				t.share++
			}
		}
		if t.share > 0 {
			tars = append(tars, t)
		}
	}
	// The later layer wins a tie: it is what the device sees.
	sort.SliceStable(tars, func(a, b int) bool {
		if tars[a].share != tars[b].share {
			return tars[a].share > tars[b].share
		}
		return tars[a].obj > tars[b].obj
	})
	tars = tars[:min(len(tars), maxRefs)]
	chosen := make([]int, len(h.members)) // 1 + tar
	where := make([]int, len(h.members))
	for k, t := range tars {
		// The longest rising row of old positions, of what is not paired yet.
		var idx, pos []int
		for j := range h.members {
			if chosen[j] == 0 {
				if q, ok := t.pos[h.members[j].path]; ok {
					idx = append(idx, j)
					pos = append(pos, q)
				}
			}
		}
		row := rising(pos)
		if len(row) == 0 {
			continue
		}
		p.refs = append(p.refs, t.obj)
		for _, r := range row {
			chosen[idx[r]] = len(p.refs)
			where[idx[r]] = pos[r]
		}
		_ = k
	}
	at := make([]int, len(p.refs))
	for j := range p.members {
		c := chosen[j]
		if c == 0 {
			continue
		}
		m := &p.members[j]
		m.ref, m.skip = c, where[j]-at[c-1]
		at[c-1] = where[j] + 1
		om := &e.old[p.refs[c-1]].members[where[j]]
		if om.file() && om.size > 0 {
			m.entry.ref, m.rsize = &source{p.refs[c-1], om.path}, om.size
		}
	}
}

// rising returns the indexes of a longest strictly rising subsequence.
func rising(v []int) []int {
	var tails []int
	prev := make([]int, len(v))
	for i, x := range v {
		k := sort.Search(len(tails), func(k int) bool { return v[tails[k]] >= x })
		prev[i] = -1
		if k > 0 {
			prev[i] = tails[k-1]
		}
		if k == len(tails) {
			tails = append(tails, i)
		} else {
			tails[k] = i
		}
	}
	if len(tails) == 0 {
		return nil
	}
	row := make([]int, len(tails))
	for i, k := tails[len(tails)-1], len(tails)-1; k >= 0; i, k = prev[i], k-1 {
		row[k] = i
	}
	return row
}
