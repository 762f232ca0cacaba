package source

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
)

// TestSlowRegistry: a server that does not answer, or answers drop by drop, is given up; a
// reader that is slow itself is not.
func TestSlowRegistry(t *testing.T) {
	const large = 4 << 20
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/silent":
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		case "/drops":
			for r.Context().Err() == nil {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				_, _ = io.WriteString(w, "x")
				w.(http.Flusher).Flush()
			}
		default:
			_, _ = w.Write(make([]byte, large))
		}
	}))
	defer server.Close()
	defer close(stop)
	get := func(patience time.Duration, path string) (*http.Response, error) {
		client := &http.Client{Transport: patientAnswers{http.DefaultTransport, patience}}
		return client.Get(server.URL + path)
	}
	const says = "is too slow: it sent less than 16 KiB in 300ms; try again, or fetch from a mirror"
	_, err := get(300*time.Millisecond, "/silent")
	require.ErrorContains(t, err, says)
	r, err := get(300*time.Millisecond, "/drops")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r.Body)
	require.ErrorContains(t, err, says)
	require.NoError(t, r.Body.Close())

	r, err = get(20*time.Second, "/large")
	require.NoError(t, err)
	body := r.Body.(*patientBody)
	body.left, body.patience = 2*time.Second, 2*time.Second
	_, err = io.ReadFull(r.Body, make([]byte, 1000))
	require.NoError(t, err)
	time.Sleep(2500 * time.Millisecond) // longer than a server may take
	n, err := io.Copy(io.Discard, r.Body)
	require.NoError(t, err)
	require.EqualValues(t, large-1000, n)
	require.NoError(t, r.Body.Close())
}

// TestSlowImage: a registry that always makes progress is given up when an image has taken
// too long in all, whichever answers it took it for.
func TestSlowImage(t *testing.T) {
	host := gentest.Serve(t, "", "", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
				next.ServeHTTP(w, r)
				return
			}
			all := httptest.NewRecorder()
			next.ServeHTTP(all, r)
			w.Header().Set("Content-Length", fmt.Sprint(all.Body.Len()))
			for all.Body.Len() > 0 && r.Context().Err() == nil {
				_, _ = w.Write(all.Body.Next(64 << 10))
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		})
	})
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": string(noise(t, 10<<20))})
	gentest.Push(t, host+"/web:1", img, "", "")
	o := opener(t, "linux/amd64")
	o.imageLimit = 500 * time.Millisecond
	began := time.Now()
	_, err := open(t, o, host+"/web:1")
	require.ErrorContains(t, err, host+"/web is too slow: the image took longer than 500ms in all: try again, or fetch from a mirror")
	require.Less(t, time.Since(began), 3*time.Second, "all of it takes more than three")
}
