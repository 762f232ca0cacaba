package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Of answers that are cut.
const (
	// resumable is the size in bytes from which an answer is worth going on with.
	resumable = 1 << 20
	// resumes is how often in a row a connection may bring less than resumable.
	resumes = 3
)

// resumedAnswers goes on with an answer whose connection is cut, from the byte where it
// ended, as long as the server sends more each time. A server that has no ranges, or has
// another content by then, gets no second request: the reader gets the error of the cut, and
// whoever reads compares the content with its digest.
type resumedAnswers struct{ http.RoundTripper }

func (p resumedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || r.Header.Get("Range") != "" ||
		resp.StatusCode != http.StatusOK || resp.ContentLength < resumable || resp.Uncompressed {
		return resp, err
	}
	resp.Body = &resumedBody{ReadCloser: resp.Body, from: p.RoundTripper, request: r, size: resp.ContentLength}
	return resp, nil
}

type resumedBody struct {
	io.ReadCloser
	from    http.RoundTripper
	request *http.Request
	size    int64
	got     int64 // of all connections
	last    int64 // where the present connection began
	short   int   // connections in a row that brought little
}

func (b *resumedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	var slow *slowError
	if err == nil || b.got >= b.size || b.request.Context().Err() != nil || errors.As(err, &slow) {
		return n, err
	}
	if !b.resume() {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	return n, nil
}

// resume replaces the connection by one that begins where it ended.
func (b *resumedBody) resume() bool {
	b.short++
	if b.got-b.last >= resumable {
		b.short = 0
	}
	b.last = b.got
	for ; b.short < resumes; b.short++ {
		if !wait(b.request.Context(), time.Duration(b.short)*time.Second) {
			return false
		}
		r := b.request.Clone(b.request.Context())
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", b.got))
		resp, err := b.from.RoundTrip(r)
		if err != nil {
			continue
		}
		if resp.StatusCode == http.StatusPartialContent && resp.Header.Get("Content-Range") == fmt.Sprintf("bytes %d-%d/%d", b.got, b.size-1, b.size) {
			b.ReadCloser.Close()
			b.ReadCloser = resp.Body
			return true
		}
		resp.Body.Close()
		if resp.StatusCode < 500 {
			return false
		}
	}
	return false
}

// wait reports whether the time passed before the context ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
