package main

import (
	"context"
	"fmt"
	"io"
)

// interruptible reads from in until the context ends, even while in is silent.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err) // nil is the end of the file
	}()
	return r
}

// progressMeter counts the bytes that are read through it, and shows progress.
type progressMeter struct {
	In    io.Reader
	Out   io.Writer // nil: shows nothing
	Size  int64     // 0: not known
	count int64
	shown int64
}

func (m *progressMeter) Read(b []byte) (int, error) {
	n, err := m.In.Read(b)
	m.count += int64(n)
	if m.Out != nil && m.count-m.shown >= 1<<20 {
		m.shown = m.count
		if m.Size > 0 {
			fmt.Fprintf(m.Out, "\r%3d %% of %d MB ", m.count*100/m.Size, m.Size/1_000_000)
		} else {
			fmt.Fprintf(m.Out, "\r%d MB ", m.count/1_000_000)
		}
	}
	return n, err
}

// Done clears the meter's line. It may be called more than once.
func (m *progressMeter) Done() {
	if m.Out != nil && m.shown > 0 {
		fmt.Fprint(m.Out, "\r                              \r")
		m.shown = 0
	}
}
