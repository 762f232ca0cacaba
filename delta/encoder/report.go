package encoder

import (
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/budget"
)

// ObjectReport says how one object of the new image is sent, and what it costs.
type ObjectReport struct {
	delta.ObjectInfo
	// Bytes of the delta by kind of stream, compressed. They add up to what the
	// object costs.
	Bytes map[string]int64
	// Files counts members by treatment: same, copied, changed, new.
	Files map[string]int
	// Work is what decoding the object takes, beside what begins the decoder.
	Work budget.Work
	// Packed says that zstd compresses the object.
	Packed bool
}

// Total returns the bytes of the delta that the object costs.
func (r ObjectReport) Total() (n int64) {
	for _, b := range r.Bytes {
		n += b
	}
	return n
}

// Report is the result of Encode.
type Report struct {
	Header  delta.Header
	Objects []ObjectReport
	Size    int64 // of the delta
	// OldFiles is the number of old files the decoder reads.
	OldFiles int64
	// Work is what decoding takes.
	Work budget.Work
}
