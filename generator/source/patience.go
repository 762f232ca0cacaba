package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A registry has a minute for the head of each answer, and a minute for each 16 KiB of its
// body. All answers for one image together have four hours: one of 10 GB then comes at
// 700 kB/s.
const (
	patience   = time.Minute
	progress   = 16 << 10
	imageLimit = 4 * time.Hour
)

// patientAnswers gives up answers that come too slowly. The time in which nobody reads them
// does not count.
type patientAnswers struct {
	http.RoundTripper
	patience time.Duration
}

func (p patientAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	slow := &slowError{r.URL.Host, p.patience}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(p.patience, func() { cancel(slow) })
	resp, err := p.RoundTripper.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if context.Cause(ctx) == error(slow) {
			err = slow
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &patientBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, slow: slow, patience: p.patience, left: p.patience}
	return resp, nil
}

// slowError reports that a server is given up.
type slowError struct {
	host     string
	patience time.Duration
}

func (e *slowError) Error() string {
	return fmt.Sprintf("%s is too slow: it sent less than %d KiB in %s; try again, or fetch from a mirror", e.host, progress>>10, e.patience)
}

type patientBody struct {
	io.ReadCloser
	ctx      context.Context
	cancel   context.CancelCauseFunc
	slow     error
	patience time.Duration
	left     time.Duration // to read until the next progress is due
	got      int           // since the last progress
}

func (b *patientBody) Read(p []byte) (int, error) {
	began := time.Now()
	timer := time.AfterFunc(b.left, func() { b.cancel(b.slow) })
	n, err := b.ReadCloser.Read(p)
	timer.Stop()
	b.left -= time.Since(began)
	if b.got += n; b.got >= progress {
		b.left, b.got = b.patience, 0
	}
	if err != nil && err != io.EOF && context.Cause(b.ctx) == b.slow {
		err = b.slow
	}
	return n, err
}

func (b *patientBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
