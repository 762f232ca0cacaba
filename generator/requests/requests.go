// Package requests keeps secrets out of what app-gen's requests tell servers that they were
// not meant for, and out of errors about requests.
//
// It knows HTTP, and nothing of what is fetched.
package requests

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	"github.com/mender-app/mender-app/artifact/input"
)

// Quiet returns a transport whose requests have no Referer, where the URL of a request and
// its token would be, and after a redirect to another host no Authorization and no Cookie.
// It follows ten redirects: clients of go-containerregistry would follow them without end.
func Quiet(next http.RoundTripper) http.RoundTripper { return quiet{next} }

const redirects = 10

type quiet struct{ next http.RoundTripper }

func (q quiet) RoundTrip(r *http.Request) (*http.Response, error) {
	first := r
	for n := 0; first.Response != nil && first.Response.Request != nil; n++ { // each is a redirect
		if n == redirects {
			return nil, fmt.Errorf("it is redirected more than %d times", redirects)
		}
		first = first.Response.Request
	}
	if first != r {
		r = r.Clone(r.Context())
		r.Header.Del("Referer")
		if r.URL.Host != first.URL.Host || r.URL.Scheme != first.URL.Scheme {
			r.Header.Del("Authorization")
			r.Header.Del("Cookie")
		}
	}
	return q.next.RoundTrip(r)
}

// firstOf is the request whose redirects led to r, or r.
func firstOf(r *http.Request) *http.Request {
	for r.Response != nil && r.Response.Request != nil { // each is a redirect
		r = r.Response.Request
	}
	return r
}

// Failed is the error of a request without its URL. The caller says where the request went.
func Failed(err error) error {
	for u := (*url.Error)(nil); errors.As(err, &u); {
		err = u.Err
	}
	return err
}

var inText = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`)

// Text is a text in which no URL has a user, a password or a query: of a registry, a URL that
// it redirects to is signed in its query.
func Text(text string) string {
	return inText.ReplaceAllStringFunc(text, func(u string) string { return input.Source(u).String() })
}
