package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/client/download"
	"github.com/mender-app/mender-app/modules/deploy/space"
)

// input is what an artifact is read from.
type input struct {
	io.Reader
	size int64 // 0: not known
	// end closes it. It gets the installation's error, which decides whether a
	// download that is not complete is worth keeping.
	end func(error) error
}

// openInput opens a file, a URL, or standard input for "-". Only if signatures are
// checked, a URL may be http.
func (p *program) openInput(ctx context.Context, from string, signed bool) (*input, error) {
	if from == "-" {
		return &input{Reader: interruptible(ctx, p.stdin), end: func(error) error { return nil }}, nil
	}
	if download.IsURL(from) {
		return p.openURL(ctx, from, signed)
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	in := &input{Reader: interruptible(ctx, f), end: func(error) error { return f.Close() }}
	if st, err := f.Stat(); err == nil {
		in.size = st.Size()
	}
	return in, nil
}

func (p *program) openURL(ctx context.Context, from string, signed bool) (*input, error) {
	s := p.config.OpenStore()
	if err := s.Protect(); err != nil {
		return nil, err
	}
	o := download.Defaults()
	o.Dir, o.PlainHTTP = s.Meta("download"), signed
	o.Room = func(bytes int64) error { return space.Check([]space.Need{{Dir: o.Dir, Bytes: bytes}}, space.Free) }
	o.Log = func(line string) { p.log.Warn(line) }
	return p.openDownload(ctx, from, o)
}

func (p *program) openDownload(ctx context.Context, from string, o download.Options) (*input, error) {
	d, err := download.Open(ctx, from, o)
	switch {
	case errors.Is(err, download.ErrURL):
		return nil, fmt.Errorf("%w: %w", device.ErrUsage, err)
	case errors.Is(err, download.ErrBusy):
		return nil, fmt.Errorf("%w: %w", client.ErrBusy, err)
	case err != nil && context.Cause(ctx) != nil:
		return nil, fmt.Errorf("%w: nothing was changed", context.Cause(ctx))
	case err != nil:
		return nil, err
	}
	if n := d.Resumed(); n > 0 {
		p.log.Info("going on where an earlier download ended", "bytes", n)
	}
	return &input{Reader: d, size: max(0, d.Size()), end: func(err error) error {
		if errors.Is(err, download.ErrFailed) || err != nil && context.Cause(ctx) != nil {
			return d.Close()
		}
		return d.Discard()
	}}, nil
}

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
