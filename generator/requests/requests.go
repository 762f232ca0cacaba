// Package requests makes app-gen's HTTP requests safe: secrets go only to the servers that
// they are meant for, and into no error; plain HTTP is asked for; redirects and answers end.
//
// It knows HTTP and the paths of a registry, and nothing of what is fetched.
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
	first, n := firstOf(r)
	if n > redirects {
		return nil, fmt.Errorf("it is redirected more than %d times", redirects)
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

// firstOf is the request whose n redirects led to r, or r.
func firstOf(r *http.Request) (first *http.Request, n int) {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
		n++
	}
	return r, n
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
