package requests_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/requests"
	"github.com/mender-app/mender-app/generator/source"
)

// TestNothingForOthers: a server to which another one redirects sees neither who asks there
// nor where the request came from, of every client of the build host.
func TestNothingForOthers(t *testing.T) {
	var mu sync.Mutex
	var heads []http.Header
	var blobs http.Handler // what the second server has
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		heads = append(heads, r.Header.Clone())
		mu.Unlock()
		blobs.ServeHTTP(w, r)
	}))
	defer second.Close()
	quiet := func(t *testing.T) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		require.NotEmpty(t, heads)
		for _, h := range heads {
			require.Empty(t, h.Get("Referer"))
			require.Empty(t, h.Get("Authorization"))
			require.Empty(t, h.Get("Job-Token"))
		}
		heads = nil
	}

	t.Run("web", func(t *testing.T) {
		blobs = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") })
		authorized := ""
		first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			authorized = user + password + r.URL.RawQuery
			http.Redirect(w, r, second.URL+r.URL.Path, http.StatusFound)
		}))
		defer first.Close()
		t.Setenv(places.HeaderVariable, "JOB-TOKEN: canary")
		p, err := places.Open(strings.Replace(first.URL, "://", "://canary-user:canary-password@", 1) + "/r?token=canary")
		require.NoError(t, err)
		require.NotContains(t, p.String(), "canary")
		body, err := p.Open(t.Context(), "shop-1.mender")
		require.NoError(t, err)
		require.NoError(t, body.Close())
		require.Equal(t, "canary-usercanary-passwordtoken=canary", authorized, "the place itself is asked with all of it")
		quiet(t)
		first.Close()
		_, err = p.Open(t.Context(), "shop-1.mender")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "canary")
	})

	// net/http drops such headers for another host, and keeps them for another port.
	t.Run("headers", func(t *testing.T) {
		blobs = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		first := httptest.NewServer(http.RedirectHandler(second.URL, http.StatusFound))
		defer first.Close()
		r, err := http.NewRequest(http.MethodGet, first.URL+"/?token=canary", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer canary")
		r.Header.Set("Cookie", "canary=1")
		answer, err := (&http.Client{Transport: requests.Quiet(http.DefaultTransport)}).Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Empty(t, heads[0].Get("Cookie"))
		quiet(t)
	})

	t.Run("registry", func(t *testing.T) {
		t.Setenv("DOCKER_CONFIG", t.TempDir())
		var registry http.Handler
		host := gentest.Serve(t, "canary-user", "canary-password", func(h http.Handler) http.Handler {
			registry = h
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, second.URL+r.URL.Path+"?signature=canary", http.StatusTemporaryRedirect)
					return
				}
				h.ServeHTTP(w, r)
			})
		})
		blobs = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { registry.ServeHTTP(w, r) })
		gentest.Push(t, host+"/shop/web:1", gentest.Image(t, "linux/amd64", gentest.Files{"a": "1"}), "canary-user", "canary-password")
		auth := base64.StdEncoding.EncodeToString([]byte("canary-user:canary-password"))
		require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(`{"auths":{"`+host+`":{"auth":"`+auth+`"}}}`), 0o600))
		spec, err := source.Parse(host + "/shop/web:1")
		require.NoError(t, err)
		o := source.Opener{TempDir: t.TempDir(), Platform: image.Platform{OS: "linux", Arch: "amd64"}}
		_, err = o.Open(t.Context(), spec, "")
		require.NoError(t, err)
		quiet(t)
		blobs = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
		o.TempDir = t.TempDir()
		_, err = o.Open(t.Context(), spec, "")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "signature")
		require.NotContains(t, err.Error(), "canary-password")
	})
}

func TestText(t *testing.T) {
	require.Equal(t, `Get "https://h/p": EOF, s3://b/x and a: b`, requests.Text(`Get "https://u:p@h/p?q=1#f": EOF, s3://b/x and a: b`))
}
