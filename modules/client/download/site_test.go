package download

import (
	"bytes"
	"io"
	"log"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// site is a server of one file, with faults. Without faults it is what net/http
// serves files with.
type site struct {
	*httptest.Server

	mu     sync.Mutex
	file   []byte
	tag    string                                                   // ETag
	fault  func(n int, w http.ResponseWriter, r *http.Request) bool // reports whether it has answered request n
	asked  []string                                                 // Range of each request
	served int
}

func newSite(t *testing.T, size int) *site {
	s := &site{file: make([]byte, size), tag: `"one"`}
	rand.New(rand.NewSource(int64(size))).Read(s.file)
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that are cut
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	file, tag, fault, n := s.file, s.tag, s.fault, len(s.asked)
	s.asked = append(s.asked, r.Header.Get("Range"))
	s.mu.Unlock()
	if tag != "" {
		w.Header().Set("ETag", tag)
	}
	if fault != nil && fault(n, w, r) {
		return
	}
	http.ServeContent(&counted{w, s}, r, "", time.Time{}, bytes.NewReader(file))
}

// counted counts the bytes that are served.
type counted struct {
	http.ResponseWriter
	s *site
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.s.mu.Lock()
	c.s.served += n
	c.s.mu.Unlock()
	return n, err
}

func (c *counted) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// cut serves bytes and then drops the connection.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func (s *site) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// requests are the ranges that were asked for, "" for the whole file.
func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// bytesServed is how many bytes of the file were served, those lost on the way included.
func (s *site) bytesServed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

func (s *site) options(t *testing.T, dir string) Options {
	return Options{
		Dir: dir, Attempts: 3, Wait: time.Millisecond, Progress: 1000, Patience: 10 * time.Second, Sync: 10_000,
		Transport: s.Client().Transport, Log: func(l string) { t.Log(l) },
	}
}

func (s *site) open(t *testing.T, dir string) *Download {
	t.Helper()
	d, err := Open(t.Context(), s.URL+"/shop.mender", s.options(t, dir))
	require.NoError(t, err)
	return d
}

func all(t *testing.T, d *Download) []byte {
	t.Helper()
	b, err := io.ReadAll(d)
	require.NoError(t, err)
	return b
}
