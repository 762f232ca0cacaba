package generator

import (
	"fmt"
	"slices"
	"sync"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/source"
)

// AllImages is what the events are about that tell how far all deltas are.
const AllImages = "all images"

// planProgress tells how far the deltas of all images are. Its methods may be called from
// several goroutines.
type planProgress struct {
	run     *run
	mu      sync.Mutex
	work    []int64 // bytes of layers to code, by image
	done    []int64
	number  []int // of each image among those with work, from 1
	several int   // images with work
}

// imageProgress is one image's part in it.
type imageProgress struct {
	all *planProgress
	i   int
}

func newPlanProgress(r *run, p *plan) *planProgress {
	a := &planProgress{run: r, work: make([]int64, len(p.images)), done: make([]int64, len(p.images)), number: make([]int, len(p.images))}
	for i, c := range p.Components {
		if !c.Unchanged && c.SameAs == "" {
			for _, l := range c.Layers {
				if !l.Omitted {
					a.work[i] += l.Size
				}
			}
		}
		if a.work[i] > 0 {
			a.several++
			a.number[i] = a.several
		}
	}
	return a
}

func (a *planProgress) image(i int) *imageProgress { return &imageProgress{a, i} }

// tell tells that a delta of the image has done of total bytes.
func (p *imageProgress) tell(what string, layer string, done, total int64) {
	a := p.all
	where := layer
	if a.several > 1 && a.number[p.i] > 0 {
		where = fmt.Sprintf("image %d of %d, %s", a.number[p.i], a.several, layer)
	}
	a.run.report(source.Event{Stage: "encode", What: what, Where: where, Done: done, Total: total})
	if a.several < 2 || total == 0 {
		return
	}
	a.mu.Lock()
	a.done[p.i] = max(a.done[p.i], int64(float64(a.work[p.i])*float64(done)/float64(total)))
	var sum, all int64
	for i := range a.work {
		sum, all = sum+a.done[i], all+a.work[i]
	}
	a.mu.Unlock()
	a.run.report(source.Event{Stage: "encode", What: AllImages, Done: sum, Total: all})
}

// encoding returns what tells of the delta that makes next.
func (m *deltaMaker) encoding(what string, olds []delta.Image, next delta.Image) func(done, total int64) {
	if m.progress == nil {
		return func(done, total int64) { m.tell("encode", what, done, total) }
	}
	var sizes []int64 // of the layers that are coded
	for n, o := range next.Objects {
		same := func(other delta.Object) bool { return other.Digest == o.Digest }
		if o.Kind != delta.Tar || slices.ContainsFunc(next.Objects[:n], same) ||
			slices.ContainsFunc(olds, func(old delta.Image) bool { return slices.ContainsFunc(old.Objects, same) }) {
			continue
		}
		sizes = append(sizes, o.Size)
	}
	return func(done, total int64) {
		n, end := 1, int64(0)
		for i, size := range sizes {
			if end += size; done < end {
				break
			}
			n = min(i+2, len(sizes))
		}
		m.progress.tell(what, fmt.Sprintf("layer %d of %d", n, max(len(sizes), 1)), done, total)
	}
}
