// Package placestest has servers for tests that keep files in memory.
package placestest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Web serves files as a generic package registry does: PUT and GET, with a token in the
// header Job-Token.
func Web(t testing.TB, token string) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	files := map[string][]byte{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Job-Token") != token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPut {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			files[r.URL.Path] = b
			w.WriteHeader(http.StatusCreated)
			return
		}
		b, ok := files[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s
}

// S3 serves a bucket, and returns the environment that reaches it. around may be nil.
func S3(t testing.TB, bucket string, around func(http.Handler) http.Handler) map[string]string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	// The user is one whose name is in the signature; the server knows no secrets.
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.StdLog(log.New(io.Discard, "", 0)))).Server()
	known := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=builder/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	})
	front := http.Handler(known)
	if around != nil {
		front = around(known)
	}
	s := httptest.NewServer(front)
	t.Cleanup(s.Close)
	return map[string]string{
		"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "builder", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_CONFIG_FILE": "/dev/null",
	}
}
