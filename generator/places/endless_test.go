package places

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Nothing that a place says without end is held in memory, whether it comes at once or in
// pages.
func TestEndlessAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		place  string // with the host of the server
		answer func(w http.ResponseWriter, r *http.Request, more func(string))
		says   string
	}{
		"tags": {"oci:%s/shop", func(w http.ResponseWriter, r *http.Request, more func(string)) {
			fmt.Fprint(w, `{"tags": [`)
			more(`"` + strings.Repeat("a", 100) + `",`)
		}, "longer than 4 MiB"},
		"pages of tags": {"oci:%s/shop", func(w http.ResponseWriter, r *http.Request, more func(string)) {
			w.Header().Set("Link", `</v2/shop/tags/list?more>; rel="next"`)
			fmt.Fprint(w, `{"tags": ["1"`+strings.Repeat(`,"1"`, 99_999)+`]}`)
		}, "more than 200000 tags"},
		"a token": {"oci:%s/shop", func(w http.ResponseWriter, r *http.Request, more func(string)) {
			if r.URL.Path == "/token" {
				more("{")
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, "byte limit"},
		"a refusal of a registry": {"oci:%s/shop", func(w http.ResponseWriter, r *http.Request, more func(string)) {
			w.WriteHeader(http.StatusForbidden)
			more("{")
		}, "byte limit"},
		"objects": {"s3://builds", func(w http.ResponseWriter, r *http.Request, more func(string)) {
			fmt.Fprint(w, "<ListBucketResult>")
			more("<Contents><Key>" + strings.Repeat("a", 100) + "</Key></Contents>")
		}, "longer than 4 MiB"},
		"a refusal of a bucket": {"s3://builds", func(w http.ResponseWriter, r *http.Request, more func(string)) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>")
			more("a")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sent, most atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" && !strings.Contains(name, "token") {
					return
				}
				c.answer(w, r, func(text string) {
					text = strings.Repeat(text, 1+1<<16/len(text))
					for r.Context().Err() == nil && sent.Load() < 1<<30 {
						n, err := fmt.Fprint(w, text)
						if sent.Add(int64(n)); err != nil {
							return
						}
					}
				})
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), int64(m.HeapInuse)))
			}))
			defer s.Close()
			for k, v := range map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret"} {
				t.Setenv(k, v)
			}
			text := c.place
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, strings.TrimPrefix(s.URL, "http://"))
			}
			p, err := Open(text)
			require.NoError(t, err)
			_, err = Releases(t.Context(), p)
			require.ErrorContains(t, err, c.says)
			require.Less(t, sent.Load(), int64(64<<20))
			require.Less(t, most.Load(), int64(192<<20))
		})
	}
}

// A file without end leaves a part of the disk to others.
func TestEndlessFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("needs root: ", err)
	}
	defer func() { require.NoError(t, unix.Unmount(dir, 0)) }()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 64<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	p, err := Open(s.URL)
	require.NoError(t, err)
	path := filepath.Join(dir, "shop-1.mender")
	least := int64(1 << 40)
	err = Download(t.Context(), p, "shop-1.mender", path, func(int64) { // before each write
		var disk unix.Statfs_t
		if unix.Statfs(dir, &disk) == nil {
			least = min(least, int64(disk.Bavail)*int64(disk.Bsize))
		}
	})
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoFileExists(t, path)
	require.GreaterOrEqual(t, least, int64(4<<20/16-64<<10))
	require.Less(t, least, int64(2<<20), "it was written")
}
