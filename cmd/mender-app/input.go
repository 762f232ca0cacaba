package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/meter"
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
		return &input{Reader: meter.Interruptible(ctx, p.stdin), end: func(error) error { return nil }}, nil
	}
	if download.IsURL(from) {
		return p.openURL(ctx, from, signed)
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	in := &input{Reader: meter.Interruptible(ctx, f), end: func(error) error { return f.Close() }}
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

// progress shows how much of the artifact has been read, on a terminal only.
func (p *program) progress(in io.Reader, size int64) *meter.Meter {
	m := &meter.Meter{In: in, Size: size}
	if f, ok := p.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !p.json {
		m.Out = f
	}
	return m
}
