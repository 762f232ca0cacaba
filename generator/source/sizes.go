package source

import (
	"archive/tar"
	"fmt"
	"io"

	"github.com/mender-app/mender-app/artifact/layer"
)

// meter is a writer of a layer's tar that sums up what its files take
// once they are unpacked. That is more than the tar has where files are sparse.
type meter struct {
	*io.PipeWriter
	sum chan int64
	// refused says why no engine unpacks the layer, and classic why Docker's classic store
	// does not. Both are valid after End.
	refused error
	classic string
}

// newMeter makes a meter.
func newMeter() *meter {
	r, w := io.Pipe()
	m := &meter{PipeWriter: w, sum: make(chan int64, 1)}
	go func() {
		var sum int64
		made, places := map[string]bool{}, newPlaces()
		tr := tar.NewReader(r)
		for {
			h, err := tr.Next()
			if err != nil {
				break // what is wrong with the tar others say
			}
			at := layer.Of(h)
			if m.classic == "" {
				m.classic = places.add(at)
			}
			if m.refused == nil {
				m.refused = refusal(at, made)
			}
			switch at.Kind {
			case layer.File, layer.Unknown:
				sum += h.Size
			}
		}
		_, _ = io.Copy(io.Discard, r)
		m.sum <- sum
	}()
	return m
}

// refusal returns why engines refuse a layer with this member after those in made, and
// adds it there; nil if they take it.
func refusal(m layer.Member, made map[string]bool) error {
	switch {
	case m.Kind == layer.Unknown && m.Header.Typeflag == tar.TypeGNUSparse:
		return fmt.Errorf("container engines cannot unpack %s, a sparse file in GNU tar's old format: write the layer with tar --format=posix, or without --sparse", m.Path)
	case m.Kind == layer.Unknown:
		return fmt.Errorf("container engines cannot unpack %s: a member of a tar of type %q", m.Path, m.Header.Typeflag)
	case m.Kind == layer.Whiteout && made[m.Path]:
		return fmt.Errorf("container engines cannot unpack the layer: it makes %s and then removes it", m.Path)
	case m.Kind == layer.Whiteout:
	case m.Kind != layer.None && m.Kind != layer.Opaque:
		made[m.Path] = true
	}
	return nil
}

// End returns the bytes of the files. It must be called once.
func (m *meter) End() int64 {
	_ = m.Close()
	return <-m.sum
}
