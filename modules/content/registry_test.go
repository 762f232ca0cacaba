package content

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

// A registry is a place, also one that wants a token which everybody gets.
func TestRegistry(t *testing.T) {
	content := some(t, 200_000)
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	want := ""
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			asked++
			require.Equal(t, "repository:shop/content:pull", r.URL.Query().Get("scope"))
			require.Equal(t, "here", r.URL.Query().Get("service"))
			fmt.Fprintf(w, `{"token": %q}`, want)
		case want != "" && r.Method == http.MethodGet && r.Header.Get("Authorization") != "Bearer "+want:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="here",scope="repository:shop/content:pull"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			store.ServeHTTP(w, r)
		}
	}))
	defer s.Close()
	upload, err := http.Post(s.URL+"/v2/shop/content/blobs/uploads/?digest=sha256:"+digest.Of(content).Hex(), "application/octet-stream", bytes.NewReader(content))
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, upload.StatusCode)
	for _, want = range []string{"", "for everybody"} {
		transport, err := Transport("", "", nil)
		require.NoError(t, err)
		f := &Fetcher{Sources: []string{s.URL + "/v2/shop/content/blobs"}, Transport: transport}
		path, err := f.fetch(t, content)
		require.NoError(t, err)
		has(t, path, content)
	}
	require.Equal(t, 1, asked)

	want = "bad\nheader"
	r, err := http.NewRequest(http.MethodGet, s.URL+"/v2/shop/content/blobs/sha256:"+digest.Of(content).Hex(), nil)
	require.NoError(t, err)
	_, err = (&tokens{next: http.DefaultTransport, have: map[string]string{}}).RoundTrip(r)
	require.ErrorContains(t, err, "gives no token")
}

// A registry that gives no token, or never has enough of them, is passed over, and neither
// memory nor time are lost with it.
func TestHostileRegistries(t *testing.T) {
	content := some(t, 1000)
	good := newPlace(t, content, nil)
	for name, give := range map[string]http.HandlerFunc{
		"no end": func(w http.ResponseWriter, r *http.Request) { endless(w, r) },
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"token": %q}`, strings.Repeat("a", maxToken))
		},
		"no token":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token": ""}`) },
		"no JSON":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) },
		"a header more": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token": "a\r\nX-B: c"}`) },
		"refused":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"elsewhere":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/token2", http.StatusFound) },
		"never enough":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token": "a"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			asked := atomic.Int64{}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if r.URL.Path == "/token" {
					give(w, r)
					return
				}
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",scope="%d"`, r.Host, asked.Load()))
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer s.Close()
			transport, err := Transport("", "", nil)
			require.NoError(t, err)
			path, err := (&Fetcher{Mirrors: []string{s.URL + "/v2/shop/blobs"}, Sources: []string{good.URL}, Transport: transport, Attempts: 1}).fetch(t, content)
			require.NoError(t, err)
			has(t, path, content)
			require.LessOrEqual(t, asked.Load(), int64(4))
		})
	}
}

// A challenge cannot send a device to a server without TLS, or make it show what it has.
func TestChallenge(t *testing.T) {
	asked := &url.URL{Scheme: "https", Host: "registry.example", Path: "/v2/shop/blobs/sha256:1"}
	u, ok := challenge(`Bearer realm="https://auth.example/token?x=1",service="a b",scope="repository:shop:pull"`, asked)
	require.True(t, ok)
	require.Equal(t, "https://auth.example/token?scope=repository%3Ashop%3Apull&service=a+b&x=1", u.String())
	for _, bad := range []string{
		"", "Basic realm=x", "Bearer ", `Bearer service="x"`, `Bearer realm="http://auth.example/token"`,
		`Bearer realm="file:///etc/passwd"`, `Bearer realm="https://user:pw@auth.example/"`, `Bearer realm="/token"`,
		`Bearer realm="https://auth.example/` + strings.Repeat("x", maxToken) + `"`,
	} {
		_, ok := challenge(bad, asked)
		require.False(t, ok, "%.100s", bad)
	}
	asked.Scheme, asked.Host = "http", "registry.example:5000"
	for realm, want := range map[string]bool{
		"http://registry.example:5000/token": true, "http://registry.example:5001/token": true, "https://auth.example/token": true,
		"http://auth.example/token": false, "http://169.254.169.254/latest": false, "http://registry.example.com/token": false,
	} {
		_, ok := challenge(`Bearer realm="`+realm+`"`, asked)
		require.Equal(t, want, ok, realm)
	}
	require.Equal(t, "https://registry.example/v2/shop/a/blobs/sha256:"+strings.Repeat("ab", 32), inPlace("https://registry.example/v2/shop/a/blobs/", digestOf(t)))
	require.Equal(t, "https://registry.example/v2/blobs/"+strings.Repeat("ab", 32), inPlace("https://registry.example/v2/blobs", digestOf(t)))
}

func digestOf(t *testing.T) digest.Digest {
	d := digest.Digest("sha256:" + strings.Repeat("ab", 32))
	require.NoError(t, d.Check())
	return d
}
