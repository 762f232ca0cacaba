// Package content fetches images that an artifact does not carry: files that are named
// by their digests, from directories and web servers. No place is trusted: a file is
// compared with its digest, and the next place is asked if it differs. What arrives over
// a network goes on where it ended, after a cut connection and after a power cut.
//
// It does not interpret the files.
package content

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/modules/client/download"
	"github.com/mender-app/mender-app/store/durable"
)

// ErrNowhere: no place has the content.
var ErrNowhere = errors.New("no place has it")

// Fetcher fetches content.
type Fetcher struct {
	// Dir is a private directory, which outlives a restart. It has what is being fetched
	// and what was fetched last.
	Dir string
	// Mirrors are directories, and URLs below which content lies. They are asked first, in
	// this order. Sources are URLs that are asked after them.
	Mirrors, Sources []string
	// Room returns an error if the file system of Dir lacks space for more bytes.
	Room func(bytes int64) error
	// MaxRate is how many bytes a second may arrive over a network; 0 means no bound.
	MaxRate int64
	// Transport makes the requests; nil: that of package download.
	Transport http.RoundTripper
	// Attempts is how often a place in a row may fail before the next is asked; it is
	// asked again, with more patience, after all others. 0 is 2.
	Attempts int
	Log      func(line string)
}

// The file and the directory of a download in Fetcher.Dir.
const (
	fetched = "content"
	partial = "download"
)

// patience is how often each place is asked in the second round.
const patience = 6

// Fetch returns the path of a file with the digest. It lies in a directory that a mirror
// names, or in Dir, until the next call with another digest.
func (f *Fetcher) Fetch(ctx context.Context, want digest.Digest, size int64) (path string, err error) {
	if err := durable.PrivateDir(f.Dir); err != nil {
		return "", err
	}
	own := filepath.Join(f.Dir, want.Hex())
	if err := f.keep(want); err != nil {
		return "", err
	}
	if err := durable.PrivateDir(own); err != nil {
		return "", err
	}
	kept := filepath.Join(own, fetched)
	if same(ctx, kept, want, size) == nil {
		return kept, nil
	}
	if err := durable.Remove(kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	limit := download.Defaults().Whole
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w in %v: what has arrived is kept", ErrNowhere, limit))
	defer cancel()
	places := append(append([]string{}, f.Mirrors...), f.Sources...)
	if len(places) == 0 {
		return "", fmt.Errorf("%w: neither the artifact nor content_mirrors names a place", ErrNowhere)
	}
	attempts := f.Attempts
	if attempts == 0 {
		attempts = 2
	}
	var failed []error
	for _, tries := range []int{attempts, max(attempts, patience)} {
		failed = nil
		again := false
		for _, place := range places {
			path, retry, err := f.from(ctx, place, want, size, tries)
			if err == nil {
				return path, nil
			}
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			f.Log(fmt.Sprintf("%s: %v", place, err))
			again = again || retry
			failed = append(failed, fmt.Errorf("%s: %w", place, err))
		}
		if !again {
			break
		}
	}
	return "", fmt.Errorf("%w: %w", ErrNowhere, errors.Join(failed...))
}

// keep removes everything but what was fetched of one digest.
func (f *Fetcher) keep(want digest.Digest) error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != want.Hex() {
			if err := os.RemoveAll(filepath.Join(f.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// from asks one place. retry says that it may have the content another time.
func (f *Fetcher) from(ctx context.Context, place string, want digest.Digest, size int64, attempts int) (path string, retry bool, err error) {
	if filepath.IsAbs(place) {
		path = filepath.Join(place, want.Hex())
		return path, false, same(ctx, path, want, size)
	}
	own := filepath.Join(f.Dir, want.Hex())
	o := download.Defaults()
	o.Dir, o.PlainHTTP, o.Attempts, o.Room, o.Transport, o.Log = filepath.Join(own, partial), true, attempts, f.Room, f.Transport, f.Log
	o.Whole = 0 // it is for all places together
	o.MaxRate, o.Want = f.MaxRate, size
	if attempts < patience {
		o.Patience = 20 * time.Second
	}
	d, err := download.Open(ctx, inPlace(place, want), o)
	if err != nil {
		return "", errors.Is(err, download.ErrFailed) && !errors.Is(err, download.ErrOtherSize), err
	}
	err = artifact.Content{Digest: want, Size: size}.Compare(ctx, d)
	switch {
	case errors.Is(err, download.ErrOtherSize):
		return "", false, errors.Join(err, d.Discard())
	case errors.Is(err, download.ErrFailed), err != nil && ctx.Err() != nil:
		return "", true, errors.Join(err, d.Close()) // what has arrived stays
	case err != nil:
		// A cache that loses its own connection may send a hole, as nginx does between slices.
		return "", d.Joined(), errors.Join(err, d.Discard())
	}
	path = filepath.Join(own, fetched)
	return path, false, errors.Join(d.Move(path), d.Discard())
}

// same returns an error unless a file has the content.
func same(ctx context.Context, path string, want digest.Digest, size int64) error {
	file, err := input.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return artifact.Content{Digest: want, Size: size}.Compare(ctx, file)
}

// Transport makes requests that trust the certificates of a file in PEM beside those of
// the system, and that show a token to servers below the mirrors alone. Both files may
// be "". A registry that gives a token to everybody is asked for it.
func Transport(caFile, tokenFile string, mirrors []string) (http.RoundTripper, error) {
	t := download.NewTransport(time.Minute)
	if caFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, err
		}
		text, err := input.Read(caFile, 1<<20)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", caFile)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	open := &tokens{next: t, have: map[string]string{}}
	if tokenFile == "" {
		return open, nil
	}
	token, err := input.Read(tokenFile, 64<<10)
	if err != nil {
		return nil, err
	}
	return &bearer{open, strings.TrimSpace(string(token)), mirrors}, nil
}

// bearer shows a token to the servers of the mirrors, over TLS alone, and not for a server
// that redirects to them.
type bearer struct {
	next    http.RoundTripper
	token   string
	mirrors []string
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	show := b.of(r.URL)
	for via := r.Response; via != nil && show; via = via.Request.Response {
		show = b.of(via.Request.URL)
	}
	if show {
		r = with(r, b.token)
	}
	return b.next.RoundTrip(r)
}

// of reports whether a URL is below a mirror.
func (b *bearer) of(u *url.URL) bool {
	return u.Scheme == "https" && slices.ContainsFunc(b.mirrors, func(m string) bool {
		return strings.HasPrefix(u.String(), strings.TrimSuffix(m, "/")+"/")
	})
}
