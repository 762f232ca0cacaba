package encoder

import (
	"cmp"
	"slices"
)

// The steps of Options.Thrift: modelSteps of ever fewer modelled bytes, then as many as
// streamSteps of ever fewer streams that the device compresses.
const (
	modelSteps  = 4
	streamSteps = 4
	// MaxThrift makes deltas that take the least to decode.
	MaxThrift = modelSteps + streamSteps
)

// dearStreams returns the indexes of contents whose streams travel as they are: those
// that save the fewest bytes for each byte that the device would have to compress.
func dearStreams(todo []*target, thrift int) (dear []int) {
	type gain struct {
		i           int
		saved, work int64
	}
	var list []gain
	var all int64
	for i, t := range todo {
		if len(t.plan.Streams) == 0 {
			continue
		}
		g := gain{i: i}
		for k := range t.plan.Streams {
			s := &t.plan.Streams[k]
			g.saved += s.Length
			g.work += s.Size
		}
		// Bytes outside of matches travel in about a third.
		g.saved = max(0, g.saved-t.plan.Uncovered(t.Size)/3)
		all += g.work
		list = append(list, g)
	}
	slices.SortStableFunc(list, func(a, b gain) int { return cmp.Compare(a.saved*b.work, b.saved*a.work) })
	drop := all * int64(max(thrift-modelSteps, 0)) / streamSteps
	for _, g := range list {
		if drop <= 0 {
			break
		}
		drop -= g.work
		dear = append(dear, g.i)
	}
	return dear
}
