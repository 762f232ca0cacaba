package source

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
)

// A registry that cuts every connection after a part of a blob: each byte is fetched once, if
// it has ranges; otherwise the blob is fetched anew, a few times.
func TestResumedBlobs(t *testing.T) {
	const part = 3 << 20 / 2
	var ranges atomic.Bool
	var sent, whole atomic.Int64
	host := gentest.Serve(t, "", "", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/sha256:") {
				next.ServeHTTP(w, r)
				return
			}
			asked := r.Header.Get("Range")
			r.Header.Del("Range")
			all := httptest.NewRecorder()
			next.ServeHTTP(all, r)
			body, at := all.Body.Bytes(), 0
			if asked != "" && ranges.Load() {
				_, err := fmt.Sscanf(asked, "bytes=%d-", &at)
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(body)-1, len(body)))
			} else {
				whole.Add(1)
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(body)-at))
			if at > 0 {
				w.WriteHeader(http.StatusPartialContent)
			}
			n, _ := w.Write(body[at:min(at+part, len(body))])
			sent.Add(int64(n))
			if at+part < len(body) {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		})
	})
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": string(noise(t, 7<<20))})
	gentest.Push(t, host+"/web:1", img, "", "")
	layers, err := img.Layers()
	require.NoError(t, err)
	size, err := layers[0].Size()
	require.NoError(t, err)
	config, err := img.RawConfigFile()
	require.NoError(t, err)

	ranges.Store(true)
	f, err := open(t, opener(t, "linux/amd64"), host+"/web:1")
	require.NoError(t, err)
	require.Equal(t, gentest.Digest(t, img), f.Image.ConfigDigest.String())
	content(t, f)
	require.EqualValues(t, 2, whole.Load(), "the config and the layer")
	require.InDelta(t, size+int64(len(config)), sent.Load(), 1<<20)

	ranges.Store(false)
	whole.Store(0)
	_, err = open(t, opener(t, "linux/amd64"), host+"/web:1")
	require.Error(t, err)
	require.LessOrEqual(t, whole.Load(), int64(1+2*attempts))
}

// noise is content that gzip does not make smaller.
func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	for i, x := 0, uint64(88172645463325252); i < n; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 24)
	}
	return b
}
