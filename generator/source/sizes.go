package source

import (
	"archive/tar"
	"io"
)

// meter is a writer of a layer's tar that sums up what its files take
// once they are unpacked. That is more than the tar has where files are sparse.
type meter struct {
	*io.PipeWriter
	sum chan int64
}

// newMeter makes a meter.
func newMeter() *meter {
	r, w := io.Pipe()
	m := &meter{w, make(chan int64, 1)}
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
func (m *meter) End() int64 {
	_ = m.Close()
	return <-m.sum
}
