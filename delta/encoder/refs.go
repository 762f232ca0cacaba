package encoder

import (
	"sort"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// planRefs pairs new members with old ones of the same path, so that the headers of
// each old tar are read once, forward. places are the contents of the members.
func (e *encoder) planRefs(h *object, p *objectPlan, places []*target) {
	type tar struct {
		obj   int
		pos   map[string]int
		share int
	}
	var tars []tar
	for i, o := range e.old {
		if o.Kind != delta.Tar {
			continue
		}
		t := tar{obj: i, pos: map[string]int{}}
		for j := range o.members {
			if o.members[j].Odd {
				break // stores may split the tar in another way from here on
			}
			t.pos[o.members[j].Path] = j
		}
		for j := range h.members {
			if _, ok := t.pos[h.members[j].Path]; ok {
				t.share++
			}
		}
		if t.share > 0 {
			tars = append(tars, t)
		}
	}
	// The later layer wins a tie: its files are the visible ones.
	sort.SliceStable(tars, func(a, b int) bool {
		if tars[a].share != tars[b].share {
			return tars[a].share > tars[b].share
		}
		return tars[a].obj > tars[b].obj
	})
	tars = tars[:min(len(tars), codec.MaxRefs)]
	chosen := make([]int, len(h.members)) // 1 + tar
	where := make([]int, len(h.members))
	for _, t := range tars {
		// The longest rising sequence of old positions, among the unpaired members.
		var idx, pos []int
		for j := range h.members {
			if chosen[j] == 0 {
				if q, ok := t.pos[h.members[j].Path]; ok {
					idx = append(idx, j)
					pos = append(pos, q)
				}
			}
		}
		row := rising(pos)
		if len(row) == 0 {
			continue
		}
		p.Refs = append(p.Refs, t.obj)
		for _, r := range row {
			chosen[idx[r]] = len(p.Refs)
			where[idx[r]] = pos[r]
		}
	}
	at := make([]int, len(p.Refs))
	for j := range p.Members {
		c := chosen[j]
		if c == 0 {
			continue
		}
		m := &p.Members[j]
		m.Ref, m.Skip = c, where[j]-at[c-1]
		at[c-1] = where[j] + 1
		om := &e.old[p.Refs[c-1]].members[where[j]]
		if om.File() && om.Size > 0 {
			places[j].Ref, places[j].RefSize = &script.Source{Base: p.Refs[c-1], Path: om.Path}, om.Size
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
