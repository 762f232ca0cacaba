package source

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
)

// A registry that answers without end, or announces sizes without bounds, costs
// little memory and traffic, and leaves no file.
func TestEndlessRegistry(t *testing.T) {
	const (
		manifestType = "application/vnd.oci.image.manifest.v1+json"
		indexType    = "application/vnd.oci.image.index.v1+json"
		traffic      = 16 << 20 // of the server, what lies in sockets included
		memory       = 64 << 20
	)
	digest := func(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }
	config := `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["` + digest("x") + `"]}}`
	manifest := func(configSize, layerSize int64, layers int) string {
		layer := fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}`, digest("x"), layerSize)
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},"layers":[%s]}`,
			manifestType, digest(config), configSize, strings.TrimSuffix(strings.Repeat(layer+",", layers), ","))
	}
	var sent atomic.Int64
	endless := func(w http.ResponseWriter, r *http.Request, start string) {
		piece := []byte(start + strings.Repeat(" ", 64<<10))
		for r.Context().Err() == nil && sent.Load() < 1<<30 {
			n, err := w.Write(piece)
			sent.Add(int64(n))
			if err != nil {
				return
			}
			piece = piece[len(start):]
			start = ""
		}
	}
	type registry struct {
		ping, manifests, blobs, token http.HandlerFunc
	}
	text := func(kind, s string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			if r.Method == http.MethodGet {
				fmt.Fprint(w, s)
			}
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code); endless(w, r, "{") }
	}
	forever := func(kind, start string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			endless(w, r, start)
		}
	}
	blobs := func(layer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, digest(config)) {
				fmt.Fprint(w, config)
				return
			}
			layer(w, r)
		}
	}
	size := int64(len(config))
	tests := map[string]struct {
		registry
		want string
	}{
		"ping":             {registry{ping: status(http.StatusInternalServerError)}, ""},
		"manifest":         {registry{manifests: forever(manifestType, "{")}, "longer than 4 MiB"},
		"index":            {registry{manifests: forever(indexType, "{")}, "longer than 4 MiB"},
		"error":            {registry{manifests: status(http.StatusBadRequest)}, ""},
		"not found":        {registry{manifests: status(http.StatusNotFound)}, "byte limit"},
		"config announced": {registry{manifests: text(manifestType, manifest(1<<30, 1, 1)), blobs: forever("", "{")}, "an image config of 1073741824 bytes"},
		"config":           {registry{manifests: text(manifestType, manifest(size, 1, 1)), blobs: forever("", config)}, "error verifying"},
		"blob's error":     {registry{manifests: text(manifestType, manifest(size, 1, 1)), blobs: status(http.StatusForbidden)}, "byte limit"},
		"redirected blob": {registry{manifests: text(manifestType, manifest(size, 1, 1)), blobs: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}}, "error verifying"},
		"layer":         {registry{manifests: text(manifestType, manifest(size, 1, 1)), blobs: blobs(forever("", ""))}, "error verifying"},
		"negative size": {registry{manifests: text(manifestType, manifest(size, -1, 1)), blobs: blobs(forever("", ""))}, "negative size"},
		"no room":       {registry{manifests: text(manifestType, manifest(size, 1<<60, 9)), blobs: blobs(forever("", ""))}, "has room for"},
		"many layers":   {registry{manifests: text(manifestType, manifest(size, 1, image.MaxLayers+1)), blobs: blobs(forever("", ""))}, "an image of 513 layers"},
		"token": {registry{ping: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, token: forever("application/json", "{")}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sent.Store(0)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := test.ping
				switch {
				case strings.Contains(r.URL.Path, "/manifests/"):
					h = test.manifests
				case strings.Contains(r.URL.Path, "/blobs/"):
					h = test.blobs
				case r.URL.Path == "/token":
					h = test.token
				case r.URL.Path == "/elsewhere":
					h = forever("", "")
				}
				if h != nil {
					h(w, r)
				}
			}))
			o := opener(t, "linux/amd64")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := open(t, o, strings.TrimPrefix(s.URL, "http://")+"/web:1")
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 2000)
			s.CloseClientConnections()
			s.Close()
			require.Less(t, sent.Load(), int64(traffic))
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(memory))
			left, err := os.ReadDir(o.TempDir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
