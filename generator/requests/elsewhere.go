package requests

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// ElsewhereError is the error of a request that a registry asked for and that is not made.
type ElsewhereError struct{ Text string }

func (e *ElsewhereError) Error() string { return e.Text }

// ErrPlain is the error of a request over plain HTTP that is not made.
var ErrPlain = errors.New("plain http is only used with registries on this machine and those named insecure in daemon.json or registries.conf")

// Registry returns a transport for the requests to one registry, HOST or HOST:PORT. It is
// asked over plain HTTP, and without verifying its certificate, if it is insecure. Otherwise
// plain HTTP is only for hosts that plain allows: go-containerregistry would also fall back
// to it for every private address and every name in .local, and send it the login.
func Registry(registry string, insecure bool, plain func(host string) bool) http.RoundTripper {
	base := remote.DefaultTransport.(*http.Transport).Clone()
	if insecure && !Loopback(registry) {
		base.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // what "insecure" means to Docker and containers
	}
	return plainGuard{guarded(Quiet(base), registry, insecure), insecure, plain}
}

type plainGuard struct {
	http.RoundTripper
	insecure bool
	plain    func(host string) bool
}

func (g plainGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !g.insecure && !g.plain(r.URL.Host) {
		return nil, ErrPlain
	}
	return g.RoundTripper.RoundTrip(r)
}

// Loopback reports whether HOST or HOST:PORT is this machine.
func Loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// guarded returns a transport for the requests to one registry, HOST or HOST:PORT. Anybody on
// the way can answer for a registry whose certificate is not verified, or that is asked over
// plain HTTP. So what such a registry says decides nothing about other hosts: they get no
// login, and over plain HTTP nothing but requests for content, which has a digest. unverified
// says that certificates are not verified.
//
// go-containerregistry verifies where a registry with TLS sends it. Of one without it refuses
// private addresses alone.
func guarded(next http.RoundTripper, registry string, unverified bool) http.RoundTripper {
	g := &guard{next: next, host: (&url.URL{Host: registry}).Hostname()}
	g.unverified.Store(unverified)
	return g
}

const form = "application/x-www-form-urlencoded"

type guard struct {
	next       http.RoundTripper
	host       string
	unverified atomic.Bool
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
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
func (g *guard) isContent(r *http.Request) bool {
	first, _ := firstOf(r)
	return first != r && strings.EqualFold(first.URL.Hostname(), g.host) && strings.HasPrefix(first.URL.Path, "/v2/")
}
