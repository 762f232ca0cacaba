package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
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

// progress shows how much of the artifact has been read, on a terminal only.
func (p *program) progress(in io.Reader, size int64) *meter {
	m := &meter{in: in, size: size}
	if f, ok := p.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !p.json {
		m.out = f
	}
	return m
}

// meter counts the bytes that are read through it, and shows progress.
type meter struct {
	in          io.Reader
	out         io.Writer // nil: shows nothing
	size, count int64
	shown       int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.in.Read(b)
	m.count += int64(n)
	if m.out != nil && m.count-m.shown >= 1<<20 {
		m.shown = m.count
		if m.size > 0 {
			fmt.Fprintf(m.out, "\r%3d %% of %d MB ", m.count*100/m.size, m.size/1_000_000)
		} else {
			fmt.Fprintf(m.out, "\r%d MB ", m.count/1_000_000)
		}
	}
	return n, err
}

// done clears the meter's line. It may be called more than once.
func (m *meter) done() {
	if m.out != nil && m.shown > 0 {
		fmt.Fprint(m.out, "\r                              \r")
		m.shown = 0
	}
}
