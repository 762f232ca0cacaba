package download

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/metered"
)

// longestWait bounds the time between two attempts, even if the server asks for more.
const longestWait = time.Minute

// NewTransport makes requests over TLS 1.2 or later, with the proxies of the environment. A
// server has patience to begin its answer, whose header is bounded.
func NewTransport(patience time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    30 * time.Second,
		ResponseHeaderTimeout:  patience,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
}

// newClient returns the client for a download. It follows up to ten redirects, never
// from https to http.
func newClient(o Options) *http.Client {
	transport := o.Transport
	if transport == nil {
		transport = NewTransport(o.Patience)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 10 {
			return final("the server redirects more than ten times")
		}
		if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
			return final("the server redirects to %s, which is not encrypted", r.URL.Scheme)
		}
		r.Header.Del("Referer") // it has the query of the first URL, where a token may be
		if to, ok := r.Context().Value(redirected{}).(*redirects); ok {
			to.add(via[0].URL.Hostname(), r.URL.Hostname())
		}
		return nil
	}}
}

// redirects are the hosts to which a server has redirected one request.
type redirects struct {
	mu    sync.Mutex
	hosts map[string]bool
}

type redirected struct{}

func (d *redirects) add(from, to string) {
	if from == to || from == "localhost" || net.ParseIP(from).IsLoopback() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts[to] = true
}

func (d *redirects) has(host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hosts[host]
}

// dial connects to a server. A server may not redirect to the device itself or to its link,
// where a request alone may have an effect.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	host, _, _ := net.SplitHostPort(address)
	if to, ok := ctx.Value(redirected{}).(*redirects); ok && to.has(host) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if ip, _, _ := net.SplitHostPort(address); !net.ParseIP(ip).IsGlobalUnicast() {
				return final("the server redirects to %s, which is this device or its link", host)
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, address)
}

// A connection is the answer to one request. It is dropped if too little arrives.
type connection struct {
	body    io.ReadCloser
	cancel  context.CancelFunc
	brought int64         // bytes since the last progress
	left    time.Duration // time to read until the next progress is due
	skip    int64         // bytes at the beginning that arrived earlier
}

// finalError is an error that another attempt would not fix.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

func final(format string, args ...any) error { return &finalError{fmt.Errorf(format, args...)} }

// busyError is an answer that asks for another attempt.
type busyError struct {
	status string
	after  time.Duration // 0: the server does not say when
}

func (e *busyError) Error() string { return "the server answers " + e.status }

func (d *Download) disconnect() {
	if c := d.connection; c != nil {
		c.cancel()
		c.body.Close() //nolint:errcheck // nothing else reads from it
		d.connection = nil
	}
}

// fetch writes the next bytes that arrive to the file. The error is io.EOF at the end.
func (d *Download) fetch() error {
	if err := d.connect(); err != nil {
		return err
	}
	c := d.connection
	// Only the time that the server takes counts, not the caller's time between reads.
	began := time.Now()
	patience := time.AfterFunc(c.left, c.cancel)
	n, err := c.body.Read(d.buffer)
	patience.Stop()
	c.left -= time.Since(began)
	if n > 0 {
		skipped := min(int64(n), c.skip)
		c.skip -= skipped
		if werr := d.write(d.buffer[skipped:n]); werr != nil {
			return werr
		}
		if c.brought += int64(n); c.brought >= d.options.Progress {
			c.brought, c.left = 0, d.options.Patience
			d.failures = 0
		}
		if perr := d.pace.wait(d.ctx, n); perr != nil {
			return perr
		}
	}
	switch {
	case err == io.EOF && c.skip == 0 && (d.record.Size < 0 || d.arrived == d.record.Size):
		d.disconnect()
		d.whole, d.record.Size = true, d.arrived
		return nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	case err == nil:
		return nil
	}
	if errors.Is(err, context.Canceled) && d.ctx.Err() == nil {
		err = fmt.Errorf("fewer than %d bytes arrived in %v", d.options.Progress, d.options.Patience)
	}
	d.disconnect()
	return d.failed(err)
}

// write appends to the file, and makes it durable from time to time.
func (d *Download) write(p []byte) error {
	if d.record.Size >= 0 && d.arrived+int64(len(p)) > d.record.Size {
		return fmt.Errorf("%w: %s: the server sends more than the %d bytes that it announced", ErrFailed, shown(d.url), d.record.Size)
	}
	if _, err := d.file.WriteAt(p, d.arrived); err != nil {
		return err
	}
	d.arrived += int64(len(p))
	if d.record.Version != "" && d.arrived-d.record.Durable >= d.options.Sync {
		return d.save()
	}
	return nil
}

// connect asks the server for the missing bytes, unless a connection is open. It
// retries until the attempts are used up. The error is io.EOF if nothing is missing.
func (d *Download) connect() error {
	for d.connection == nil {
		if d.whole {
			return io.EOF
		}
		err := d.request()
		if err == nil || err == io.EOF {
			return err
		}
		if err := d.failed(err); err != nil {
			return err
		}
	}
	return nil
}

// failed records a failed attempt and waits before the next one. The error says why
// there is no next one.
func (d *Download) failed(err error) error {
	if cause := context.Cause(d.ctx); cause != nil {
		return cause
	}
	reason := plain(err)
	var hopeless *finalError
	if errors.As(err, &hopeless) || isTrust(err) {
		return fmt.Errorf("%w: %s: %w", ErrFailed, shown(d.url), reason)
	}
	d.failures++
	if d.failures >= d.options.Attempts {
		return fmt.Errorf("%w: %s: %w; %s failed. What has arrived is kept: run the same command again to continue", ErrFailed, shown(d.url), reason, metered.Count(d.failures, "attempt"))
	}
	pause := min(d.options.Wait<<min(d.failures-1, 16), longestWait)
	var busy *busyError
	if errors.As(err, &busy) && busy.after > pause {
		pause = min(busy.after, longestWait)
	}
	if d.options.Log != nil {
		d.options.Log(fmt.Sprintf("%s: %v; trying again in %v", shown(d.url), reason, pause))
	}
	select {
	case <-d.ctx.Done():
		return context.Cause(d.ctx)
	case <-time.After(pause):
		return nil
	}
}

// plain is an error without the URL that net/http puts before it.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// isTrust reports whether the error says that this device does not trust the server's certificate.
func isTrust(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}

// request makes one request for the missing bytes. The error is io.EOF if there are
// none.
func (d *Download) request() error {
	ctx, cancel := context.WithCancel(context.WithValue(d.ctx, redirected{}, &redirects{hosts: map[string]bool{}}))
	patience := time.AfterFunc(d.options.Patience, cancel)
	defer patience.Stop()
	give := func(err error) error {
		cancel()
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url.String(), nil)
	if err != nil {
		return give(final("not an HTTP URL"))
	}
	r.Header.Set("Accept-Encoding", "identity")
	if d.arrived > 0 && d.record.Version != "" && !d.noRanges {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.arrived))
		r.Header.Set("If-Range", d.record.Version)
	}
	answer, err := d.client.Do(r)
	if err != nil {
		if errors.Is(err, context.Canceled) && d.ctx.Err() == nil {
			err = fmt.Errorf("no answer in %v", d.options.Patience)
		}
		return give(err)
	}
	skip, err := d.accept(answer, r.Header.Get("Range") != "")
	if err != nil {
		answer.Body.Close() //nolint:errcheck // its content is not wanted
		return give(err)
	}
	d.connection = &connection{body: answer.Body, cancel: cancel, left: d.options.Patience, skip: skip}
	return nil
}

// accept checks the head of an answer. The body's byte after skip belongs at
// d.arrived.
func (d *Download) accept(answer *http.Response, ranged bool) (skip int64, err error) {
	status := clip.Text(answer.Status)
	if e := answer.Header.Get("Content-Encoding"); e != "" && e != "identity" && answer.StatusCode/100 == 2 {
		return 0, final("the server compresses the artifact without being asked")
	}
	switch code := answer.StatusCode; {
	case code == http.StatusOK:
		return d.fromBeginning(answer)
	case code == http.StatusPartialContent && ranged:
		from, size, ok := contentRange(answer.Header.Get("Content-Range"))
		if !ok || from != d.arrived || d.record.Size >= 0 && size != d.record.Size {
			d.noRanges = true
			return 0, errors.New("the server sends a different part of the file than requested")
		}
		if err := d.wanted(size); err != nil {
			return 0, err
		}
		d.record.Size, d.joined = size, true
		return 0, d.room(size - d.arrived)
	case code == http.StatusRequestedRangeNotSatisfiable && ranged:
		if answer.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.arrived) && (d.record.Size < 0 || d.record.Size == d.arrived) {
			d.whole, d.record.Size = true, d.arrived
			return 0, io.EOF
		}
		d.noRanges = true
		return 0, errors.New("the server has another file now")
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return 0, &busyError{status: status, after: retryAfter(answer.Header.Get("Retry-After"))}
	default:
		return 0, final("the server answers %s", status)
	}
}

// wanted refuses a size that the server announces, if another one is wanted.
func (d *Download) wanted(size int64) error {
	if want := d.options.Want; want > 0 && size >= 0 && size != want {
		return final("%w: %d bytes, not %d", ErrOtherSize, size, want)
	}
	return nil
}

// fromBeginning takes an answer with the whole file.
func (d *Download) fromBeginning(answer *http.Response) (skip int64, err error) {
	if err := d.wanted(answer.ContentLength); err != nil {
		return 0, err
	}
	sent := version(answer.Header)
	switch {
	case d.read == 0:
		if err := errors.Join(d.remove(), d.begin(sent, answer.ContentLength)); err != nil {
			return 0, &finalError{err} // of this device
		}
		return 0, nil
	case sent != "" && sent == d.record.Version && answer.ContentLength == d.record.Size:
		return d.arrived, nil // a server without ranges
	default:
		return 0, final("the server has another version of the file now: run the command again")
	}
}

// version returns the version of an answer, in the form of If-Range; "" if it has none.
func version(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) && len(tag) <= 1<<10 { // not a weak one
		return tag
	}
	if t, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		return t.UTC().Format(http.TimeFormat)
	}
	return ""
}

// contentRange reads "bytes FROM-TO/SIZE" that reaches to the end of the file.
func contentRange(s string) (from, size int64, ok bool) {
	span, total, ok1 := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	first, last, ok2 := strings.Cut(span, "-")
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	size, err3 := strconv.ParseInt(total, 10, 64)
	ok = ok1 && ok2 && strings.HasPrefix(s, "bytes ") && errors.Join(err1, err2, err3) == nil && from >= 0 && from <= to && to == size-1
	return from, size, ok
}

// retryAfter reads a number of seconds or a date.
func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n >= 0 && n < 1<<20 {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return time.Until(t)
	}
	return 0
}
