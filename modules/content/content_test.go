package content

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

// place is a web server with content. break changes how it answers.
type place struct {
	*httptest.Server
	asked atomic.Int64
	from  atomic.Int64 // where the last range begins; -1 without a range
}

func newPlace(t *testing.T, content []byte, answer func(w http.ResponseWriter, r *http.Request, asked int64) bool) *place {
	p := &place{}
	p.from.Store(-1)
	name := digest.Of(content).Hex()
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := p.asked.Add(1)
		p.from.Store(-1)
		if s, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && s != "0-" {
			p.from.Store(int64(len(s)))
		}
		if answer != nil && answer(w, r, n) {
			return
		}
		if path.Base(r.URL.Path) != name {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", `"`+name+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(p.Close)
	return p
}

func some(t *testing.T, n int) []byte {
	b := make([]byte, n)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return b
}

func (f *Fetcher) fetch(t *testing.T, content []byte) (string, error) {
	t.Helper()
	f.Log = func(line string) { t.Log(line) }
	if f.Dir == "" {
		f.Dir = filepath.Join(t.TempDir(), "content")
	}
	return f.Fetch(t.Context(), digest.Of(content), int64(len(content)))
}

func has(t *testing.T, path string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
}

// A place that has it not, lies, sends too much, too little or garbage is passed over; the
// next one has it.
func TestPlaces(t *testing.T) {
	content := some(t, 300_000)
	good := newPlace(t, content, nil)
	lies := map[string]func(w http.ResponseWriter, r *http.Request, _ int64) bool{
		"nothing": func(w http.ResponseWriter, r *http.Request, _ int64) bool { http.NotFound(w, r); return true },
		"a lie": func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			w.Write(some(t, len(content)))
			return true
		},
		"too much": func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			w.Write(some(t, len(content)+1))
			return true
		},
		"too little": func(w http.ResponseWriter, _ *http.Request, _ int64) bool { w.Write(content[:1000]); return true },
		"no end":     func(w http.ResponseWriter, r *http.Request, _ int64) bool { return endless(w, r) },
		"a page":     func(w http.ResponseWriter, _ *http.Request, _ int64) bool { w.Write([]byte("<html>")); return true },
		"another protocol": func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			w.WriteHeader(http.StatusTeapot)
			return true
		},
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			bad := newPlace(t, content, lie)
			f := &Fetcher{Mirrors: []string{bad.URL + "/x"}, Sources: []string{good.URL + "/content/"}}
			path, err := f.fetch(t, content)
			require.NoError(t, err)
			has(t, path, content)
			require.Positive(t, bad.asked.Load())

			// It is there now: nobody is asked again.
			asked := good.asked.Load()
			_, err = f.fetch(t, content)
			require.NoError(t, err)
			require.Equal(t, asked, good.asked.Load())
		})
	}
}

// Space is reserved for what the artifact announces, whatever size a place announces, at
// the beginning or later, or if it announces none.
func TestSizes(t *testing.T) {
	content := some(t, 300_000)
	good := newPlace(t, content, nil)
	tag := `"` + digest.Of(content).Hex() + `"`
	for name, lie := range map[string]func(w http.ResponseWriter, r *http.Request, asked int64) bool{
		"too large": func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			w.Header().Set("Content-Length", "1000000000")
			w.Write(content)
			return true
		},
		"too large later": func(w http.ResponseWriter, r *http.Request, asked int64) bool {
			w.Header().Set("ETag", tag)
			if asked == 1 {
				w.Write(content[:1000])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Range", "bytes 1000-999999999/1000000000")
			w.WriteHeader(http.StatusPartialContent)
			w.Write(content[1000:])
			return true
		},
		"unknown": func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			w.(http.Flusher).Flush()
			w.Write(content)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			most, asked := int64(0), 0
			f := &Fetcher{Mirrors: []string{newPlace(t, content, lie).URL}, Sources: []string{good.URL}, Room: func(bytes int64) error {
				most, asked = max(most, bytes), asked+1
				return nil
			}}
			path, err := f.fetch(t, content)
			require.NoError(t, err)
			has(t, path, content)
			require.Positive(t, asked)
			require.LessOrEqual(t, most, int64(len(content)))
		})
	}
}

// A place that sends just enough to be waited for holds an update for four hours, and no
// longer, also with more such places. What has arrived stays.
func TestSlowInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := some(t, 100<<20)
		f := &Fetcher{
			Dir: filepath.Join(t.TempDir(), "content"), Mirrors: []string{"http://a.example", "http://b.example"}, Log: func(string) {},
			Transport: dripping(content),
		}
		began := time.Now()
		_, err := f.Fetch(t.Context(), digest.Of(content), int64(len(content)))
		require.ErrorIs(t, err, ErrNowhere)
		require.ErrorContains(t, err, "in 4h0m0s: what has arrived is kept")
		require.Equal(t, 4*time.Hour, time.Since(began))
		kept, err := os.Stat(filepath.Join(f.Dir, digest.Of(content).Hex(), partial, "artifact"))
		require.NoError(t, err)
		require.Greater(t, kept.Size(), int64(4<<20))
	})
}

// dripping is a server that sends 20 KiB of the content every 50 seconds.
type dripping []byte

func (d dripping) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{"Etag": {`"1"`}}, ContentLength: int64(len(d)),
		Body: io.NopCloser(&drops{r.Context(), d}), Request: r,
	}, nil
}

type drops struct {
	ctx  context.Context
	rest []byte
}

func (d *drops) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(50 * time.Second):
	}
	n := copy(p, d.rest[:min(20<<10, len(d.rest))])
	d.rest = d.rest[n:]
	return n, nil
}

// endless sends bytes until nobody reads them.
func endless(w http.ResponseWriter, r *http.Request) bool {
	block := make([]byte, 64<<10)
	for r.Context().Err() == nil {
		if _, err := w.Write(block); err != nil {
			break
		}
	}
	return true
}

// A directory is a place, too. What is in it is read where it is, and never believed.
func TestDirectories(t *testing.T) {
	content := some(t, 1000)
	name := digest.Of(content).Hex()
	empty, lies, pipe, good := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(lies, name), some(t, 1000), 0o600))
	require.NoError(t, mkfifo(filepath.Join(pipe, name)))
	require.NoError(t, os.WriteFile(filepath.Join(good, name), content, 0o600))
	path, err := (&Fetcher{Mirrors: []string{empty, lies, pipe, good}}).fetch(t, content)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(good, name), path)

	_, err = (&Fetcher{Mirrors: []string{empty, lies}}).fetch(t, content)
	require.ErrorIs(t, err, ErrNowhere)
	require.ErrorContains(t, err, lies+": it is not what its name says")
	_, err = (&Fetcher{}).fetch(t, content)
	require.ErrorContains(t, err, "neither the artifact nor content_mirrors names a place")
}

// What arrived before a cut is not fetched again, also by the next process.
func TestGoesOn(t *testing.T) {
	content := some(t, 20<<20)
	dead := true
	p := newPlace(t, content, func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
		if !dead {
			return false
		}
		w.Header().Set("ETag", `"`+digest.Of(content).Hex()+`"`)
		w.Header().Set("Content-Length", "20971520")
		w.Write(content[:12<<20])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	f := &Fetcher{Mirrors: []string{p.URL}, Attempts: 1}
	ctx, cancel := newContext(t)
	f.Dir, f.Log = filepath.Join(t.TempDir(), "content"), func(string) { cancel() } // as a power cut
	_, err := f.Fetch(ctx, digest.Of(content), int64(len(content)))
	require.Error(t, err)
	dead = false
	path, err := (&Fetcher{Dir: f.Dir, Mirrors: f.Mirrors}).fetch(t, content)
	require.NoError(t, err)
	has(t, path, content)
	require.Positive(t, p.from.Load(), "the rest alone was asked for")

	// Another content takes its place.
	other := some(t, 10)
	d := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(d, digest.Of(other).Hex()), other, 0o600))
	_, err = (&Fetcher{Dir: f.Dir, Mirrors: []string{d}}).fetch(t, other)
	require.NoError(t, err)
	require.NoFileExists(t, path)
}

// A cache whose own connection is cut leaves out what it lacks, sends what comes after, and
// ends too early. The end that the device then asks for makes the size right and the content
// wrong: it is fetched anew from the same place.
func TestHole(t *testing.T) {
	content := some(t, 300_000)
	p := newPlace(t, content, func(w http.ResponseWriter, r *http.Request, asked int64) bool {
		if asked > 1 {
			return false
		}
		w.Header().Set("ETag", `"`+digest.Of(content).Hex()+`"`)
		w.Header().Set("Content-Length", "300000")
		w.Write(content[:100_000])
		w.Write(content[150_000:])
		panic(http.ErrAbortHandler)
	})
	f := &Fetcher{Sources: []string{p.URL}}
	path, err := f.fetch(t, content)
	require.NoError(t, err)
	has(t, path, content)
	require.EqualValues(t, 3, p.asked.Load(), "with a hole, its end, and all of it")
}

// The token is for the mirrors alone, over TLS.
func TestToken(t *testing.T) {
	content := some(t, 100)
	var seen atomic.Value
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
		w.Write(content)
	}))
	defer s.Close()
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(ca, pemOf(s.Certificate().Raw), 0o600))
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	tr, err := Transport(ca, token, []string{s.URL + "/mine"})
	require.NoError(t, err)
	_, err = (&Fetcher{Transport: tr, Mirrors: []string{s.URL + "/mine"}}).fetch(t, content)
	require.NoError(t, err)
	require.Equal(t, "Bearer secret", seen.Load())
	_, err = (&Fetcher{Transport: tr, Sources: []string{s.URL + "/mineral"}}).fetch(t, content)
	require.NoError(t, err)
	require.Empty(t, seen.Load())

	// Nor does another server get a mirror to see the token, by a redirect.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URL+"/mine/%2e%2e/theirs", http.StatusFound)
	}))
	defer other.Close()
	_, err = (&Fetcher{Transport: tr, Sources: []string{other.URL}}).fetch(t, content)
	require.NoError(t, err)
	require.Empty(t, seen.Load())

	_, err = Transport(filepath.Join(dir, "token"), "", nil)
	require.ErrorContains(t, err, "has no certificate")
}
