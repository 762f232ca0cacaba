// Package metered wraps readers and writers so that somebody is told how many
// bytes pass, and the stream ends when a context does.
package metered

import (
	"context"
	"io"
)

// Reader passes r on. After each read it calls step with the number of bytes
// read. Once ctx is done, Read returns the cause.
func Reader(ctx context.Context, r io.Reader, step func(n int64)) io.Reader {
	return &reader{ctx, r, step}
}

// Writer passes everything on to w. After each write it calls step with the
// number of bytes written. Once ctx is done, Write returns the cause.
func Writer(ctx context.Context, w io.Writer, step func(n int64)) io.Writer {
	return &writer{ctx, w, step}
}

// Sum returns a step function that calls tell with the sum so far. It is not
// safe for concurrent use.
func Sum(tell func(sum int64)) func(n int64) {
	var sum int64
	return func(n int64) {
		sum += n
		tell(sum)
	}
}

type reader struct {
	ctx  context.Context
	r    io.Reader
	step func(int64)
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.r.Read(p)
	r.step(int64(n))
	return n, err
}

type writer struct {
	ctx  context.Context
	w    io.Writer
	step func(int64)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.w.Write(p)
	w.step(int64(n))
	return n, err
}
