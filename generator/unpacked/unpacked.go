// Package unpacked sums up what the files of a layer take once they are unpacked.
package unpacked

import (
	"archive/tar"
	"io"
)

// Meter is a writer of a layer's tar that sums up what its files take
// once they are unpacked. That is more than the tar has where files are sparse.
type Meter struct {
	*io.PipeWriter
	sum chan int64
}

// NewMeter makes a Meter.
func NewMeter() *Meter {
	r, w := io.Pipe()
	m := &Meter{w, make(chan int64, 1)}
	go func() {
		var sum int64
		tr := tar.NewReader(r)
		for {
			h, err := tr.Next()
			if err != nil {
				break // what is wrong with the tar others say
			}
			if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse {
				sum += h.Size
			}
		}
		_, _ = io.Copy(io.Discard, r)
		m.sum <- sum
	}()
	return m
}

// End returns the bytes of the files. It must be called once.
func (m *Meter) End() int64 {
	_ = m.Close()
	return <-m.sum
}
