// Package metered counts the bytes that pass through readers and writers, and stops
// them when a context ends.
package metered

import (
	"context"
	"io"
)

// Reader returns a reader of r. Once ctx is done, Read returns the cause. After
// each read it calls step, unless that is nil, with the number of bytes read.
func Reader(ctx context.Context, r io.Reader, step func(n int64)) io.Reader {
	return &reader{ctx, r, orNothing(step)}
}

// Writer returns a writer to w. Once ctx is done, Write returns the cause. After
// each write it calls step, unless that is nil, with the number of bytes written.
func Writer(ctx context.Context, w io.Writer, step func(n int64)) io.Writer {
	return &writer{ctx, w, orNothing(step)}
}

func orNothing(step func(int64)) func(int64) {
	if step == nil {
		return func(int64) {}
	}
	return step
}

// Counter counts the bytes that are written to it, and keeps none. With
// [io.TeeReader] it counts what is read, with [io.MultiWriter] what is written.
type Counter int64

// Write implements [io.Writer]. It does not fail.
func (c *Counter) Write(p []byte) (int, error) {
	*c += Counter(len(p))
	return len(p), nil
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
