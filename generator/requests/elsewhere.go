package requests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
)

// ElsewhereError is the error of a request that a registry asked for and that is not made.
type ElsewhereError struct{ Text string }

func (e *ElsewhereError) Error() string { return e.Text }

// Guarded returns a transport for the requests to one registry, HOST or HOST:PORT. Anybody on
// the way can answer for a registry whose certificate is not verified, or that is asked over
// plain HTTP. So what such a registry says decides nothing about other hosts: they get no
// login, and over plain HTTP nothing but requests for content, which has a digest. unverified
// says that certificates are not verified.
//
// go-containerregistry verifies where a registry with TLS sends it. Of one without it refuses
// private addresses alone.
func Guarded(next http.RoundTripper, registry string, unverified bool) http.RoundTripper {
	g := &guarded{next: next, host: (&url.URL{Host: registry}).Hostname()}
	g.unverified.Store(unverified)
	return g
}

const form = "application/x-www-form-urlencoded"

type guarded struct {
	next       http.RoundTripper
	host       string
	unverified atomic.Bool
}

func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.EqualFold(r.URL.Hostname(), g.host) {
		if r.URL.Scheme == "http" {
			g.unverified.Store(true)
		}
		return g.next.RoundTrip(r)
	}
	if !g.unverified.Load() {
		return g.next.RoundTrip(r)
	}
	// go-containerregistry sends a login as a header or, for a token, in a form.
	if r.Header.Get("Authorization") != "" || r.Header.Get("Content-Type") == form {
		return nil, &ElsewhereError{fmt.Sprintf("the registry %s, which is not verified, names %s for logins: that host gets no login", g.host, r.URL.Host)}
	}
	if r.Method == http.MethodGet && r.URL.Scheme == "http" && !g.isContent(r) {
		return nil, &ElsewhereError{fmt.Sprintf("the registry %s, which is not verified, names %s for tokens, over plain HTTP: only the registry's own host is asked so", g.host, r.URL.Host)}
	}
	return g.next.RoundTrip(r)
}

// isContent reports whether the registry redirects a request for content.
func (g *guarded) isContent(r *http.Request) bool {
	first := firstOf(r)
	return first != r && strings.EqualFold(first.URL.Hostname(), g.host) && strings.HasPrefix(first.URL.Path, "/v2/")
}
