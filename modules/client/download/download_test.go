package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestDownload(t *testing.T) {
	for _, size := range []int{0, 1, 100_000} {
		s, dir := newSite(t, size), t.TempDir()
		d := s.open(t, dir)
		require.EqualValues(t, size, d.Size())
		require.True(t, bytes.Equal(s.file, all(t, d)))
		_, err := s.tryOpen(t, dir)
		require.ErrorIs(t, err, ErrBusy)
		require.NoError(t, d.Close())

		// The second time the server only says that the file is the same.
		d = s.open(t, dir)
		if size > 0 {
			require.EqualValues(t, size, d.Resumed())
			require.Equal(t, []string{"", fmt.Sprintf("bytes=%d-", size)}, s.requests())
		}
		require.True(t, bytes.Equal(s.file, all(t, d)))
		require.NoError(t, d.Discard())
		require.NoFileExists(t, filepath.Join(dir, dataFile))
		require.NoFileExists(t, filepath.Join(dir, recordFile))
	}
}

func (s *site) tryOpen(t *testing.T, dir string) (*Download, error) {
	return Open(t.Context(), s.URL+"/shop.mender", s.options(t, dir))
}

// A connection that is cut is continued where it ended.
func TestCutConnections(t *testing.T) {
	s := newSite(t, 300_000)
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		http.ServeContent(&cut{&counted{w, s}, 50_000}, r, "", time.Time{}, bytes.NewReader(s.file))
		return true
	}
	d := s.open(t, t.TempDir())
	require.True(t, bytes.Equal(s.file, all(t, d)))
	require.NoError(t, d.Discard())
	require.Equal(t, []string{"", "bytes=50000-", "bytes=100000-", "bytes=150000-", "bytes=200000-", "bytes=250000-"}, s.requests())
	require.Equal(t, 300_000, s.bytesServed(), "nothing is served twice")
}

// What is durable survives the end of the process; what is not is not believed.
func TestResumedByAnotherProcess(t *testing.T) {
	s, dir := newSite(t, 300_000), t.TempDir()
	d := s.open(t, dir)
	_, err := io.CopyN(io.Discard, d, 120_000)
	require.NoError(t, err)
	require.NoError(t, d.Close())

	d = s.open(t, dir)
	have := d.Resumed()
	require.GreaterOrEqual(t, have, int64(120_000))
	require.Equal(t, fmt.Sprintf("bytes=%d-", have), s.requests()[1])
	_, err = io.CopyN(io.Discard, d, 200_000)
	require.NoError(t, err)
	// A power cut: the lock ends with the process, and the end of the file, which
	// was not synced, holds something else.
	last := d.record.Durable
	require.NoError(t, d.file.Truncate(last))
	_, err = d.file.WriteAt(make([]byte, 50_000), last)
	require.NoError(t, err)
	d.disconnect()
	require.NoError(t, d.file.Close())
	d.unlock()

	d = s.open(t, dir)
	require.Equal(t, last, d.Resumed())
	require.True(t, bytes.Equal(s.file, all(t, d)))
	require.NoError(t, d.Close())
}

// The record and the file may be anything: the content is what the server has.
func TestDamagedRecord(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"no file":   func(dir string) error { return os.Remove(filepath.Join(dir, dataFile)) },
		"shorter":   func(dir string) error { return os.Truncate(filepath.Join(dir, dataFile), 5) },
		"no record": func(dir string) error { return os.Remove(filepath.Join(dir, recordFile)) },
		"not JSON": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, recordFile), []byte("{"), 0o600)
		},
		"negative": func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, recordFile))
			b = bytes.Replace(b, []byte(`"durable":`), []byte(`"durable":-`), 1)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, recordFile), b, 0o600))
		},
		"longer than the file is": func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, recordFile))
			b = bytes.Replace(b, []byte(`"durable":`), []byte(`"durable":9`), 1)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, recordFile), b, 0o600))
		},
		"another URL": func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, recordFile))
			b = bytes.Replace(b, []byte(`"url_sha256":"`), []byte(`"url_sha256":"0`), 1)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, recordFile), b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t, 100_000), t.TempDir()
			d := s.open(t, dir)
			_, err := io.CopyN(io.Discard, d, 50_000)
			require.NoError(t, err)
			require.NoError(t, d.Close())
			require.NoError(t, damage(dir))
			d = s.open(t, dir)
			require.Zero(t, d.Resumed())
			require.True(t, bytes.Equal(s.file, all(t, d)))
			require.NoError(t, d.Close())
		})
	}
}

// Another version of the file is never mixed with the old one.
func TestVersions(t *testing.T) {
	const size = 200_000
	half := func(t *testing.T, s *site, dir string) {
		d := s.open(t, dir)
		_, err := io.CopyN(io.Discard, d, size/2)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
	t.Run("between two runs", func(t *testing.T) {
		s, dir := newSite(t, size), t.TempDir()
		half(t, s, dir)
		s.set(func() { s.file, s.tag = bytes.Repeat([]byte("new"), size/3), `"two"` })
		require.True(t, bytes.Equal(s.file, all(t, s.open(t, dir))))
	})
	t.Run("without a name", func(t *testing.T) {
		s, dir := newSite(t, size), t.TempDir()
		s.tag = "" // before the first request
		half(t, s, dir)
		s.set(func() { s.file = bytes.Repeat([]byte("new"), size/3) })
		require.True(t, bytes.Equal(s.file, all(t, s.open(t, dir))))
		require.Equal(t, []string{"", ""}, s.requests())
	})
	t.Run("while it is read", func(t *testing.T) {
		s := newSite(t, size)
		s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 0 {
				http.ServeContent(&cut{w, size / 2}, r, "", time.Time{}, bytes.NewReader(s.file))
			}
			w.Header().Set("ETag", `"two"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.file))
			return true
		}
		_, err := io.ReadAll(s.open(t, t.TempDir()))
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorContains(t, err, "the server has another version of the file now: run the command again")
	})
	t.Run("server without ranges", func(t *testing.T) {
		s := newSite(t, size)
		s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Range")
			http.ServeContent(&cut{w, []int{size / 2, size / 3, size}[n]}, r, "", time.Time{}, bytes.NewReader(s.file))
			return true
		}
		require.True(t, bytes.Equal(s.file, all(t, s.open(t, t.TempDir()))))
		require.Len(t, s.requests(), 3)
	})
	t.Run("server with wrong ranges", func(t *testing.T) {
		s := newSite(t, size)
		s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
			switch n {
			case 0:
				http.ServeContent(&cut{w, size / 2}, r, "", time.Time{}, bytes.NewReader(s.file))
			case 1:
				w.Header().Set("Content-Range", "bytes 7-9/10")
				w.WriteHeader(http.StatusPartialContent)
			}
			return n == 1
		}
		require.True(t, bytes.Equal(s.file, all(t, s.open(t, t.TempDir()))))
		require.Equal(t, []string{"", fmt.Sprintf("bytes=%d-", size/2), ""}, s.requests())
	})
	t.Run("by its date", func(t *testing.T) {
		s := newSite(t, size)
		s.tag = "" // before the first request
		at := time.Now().Add(-time.Hour)
		s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
			http.ServeContent(&cut{w, size * 2 / 3}, r, "", at, bytes.NewReader(s.file))
			return true
		}
		require.True(t, bytes.Equal(s.file, all(t, s.open(t, t.TempDir()))))
		require.Equal(t, []string{"", fmt.Sprintf("bytes=%d-", size*2/3)}, s.requests())
	})
	t.Run("of unknown size", func(t *testing.T) {
		s, dir := newSite(t, size), t.TempDir()
		s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.(http.Flusher).Flush()
			_, _ = w.Write(s.file)
			return true
		}
		d := s.open(t, dir)
		require.EqualValues(t, -1, d.Size())
		require.True(t, bytes.Equal(s.file, all(t, d)))
		require.EqualValues(t, size, d.Size())
	})
}

// What a bad server does ends, with an error that says it.
func TestBadServers(t *testing.T) {
	reply := func(code int, header, value string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set(header, value)
			w.WriteHeader(code)
			return true
		}
	}
	// after cuts the first connection in the middle of the file, so that the next
	// request asks for a range.
	after := func(s *site, next func(int, http.ResponseWriter, *http.Request) bool) func(int, http.ResponseWriter, *http.Request) bool {
		return func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 0 {
				http.ServeContent(&cut{w, 50_000}, r, "", time.Time{}, bytes.NewReader(s.file))
			}
			return next(n, w, r)
		}
	}
	for name, c := range map[string]struct {
		fault func(*site) func(int, http.ResponseWriter, *http.Request) bool
		want  string
		asked int
	}{
		"not found": {func(*site) func(int, http.ResponseWriter, *http.Request) bool { return reply(404, "X", "") }, "answers 404 Not Found", 1},
		"forbidden": {func(*site) func(int, http.ResponseWriter, *http.Request) bool { return reply(403, "X", "") }, "answers 403 Forbidden", 1},
		"busy":      {func(*site) func(int, http.ResponseWriter, *http.Request) bool { return reply(503, "Retry-After", "0") }, "answers 503 Service Unavailable; 3 attempts", 3},
		"compressed": {func(*site) func(int, http.ResponseWriter, *http.Request) bool {
			return reply(200, "Content-Encoding", "gzip")
		}, "compresses", 1},
		"to http": {func(*site) func(int, http.ResponseWriter, *http.Request) bool {
			return reply(302, "Location", "http://127.0.0.1:1/x")
		}, "redirects to http, which is not encrypted", 1},
		"in circles": {func(*site) func(int, http.ResponseWriter, *http.Request) bool { return reply(302, "Location", "/x") }, "redirects more than ten times", 11},
		"part unasked": {func(*site) func(int, http.ResponseWriter, *http.Request) bool {
			return reply(206, "Content-Range", "bytes 5-9/10")
		}, "answers 206", 1},
		"another part": {func(s *site) func(int, http.ResponseWriter, *http.Request) bool {
			return after(s, reply(206, "Content-Range", "bytes 5-9/10"))
		}, "answers 206 Partial Content", 3},
		"no such range": {func(s *site) func(int, http.ResponseWriter, *http.Request) bool {
			return after(s, reply(416, "Content-Range", "bytes */10"))
		}, "answers 416 Requested Range Not Satisfiable", 3},
		"silent": {func(*site) func(int, http.ResponseWriter, *http.Request) bool {
			return func(_ int, _ http.ResponseWriter, r *http.Request) bool {
				<-r.Context().Done()
				return true
			}
		}, "no answer in", 3},
		"too slow": {func(*site) func(int, http.ResponseWriter, *http.Request) bool {
			return func(_ int, w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Length", "100000")
				for r.Context().Err() == nil {
					_, _ = w.Write([]byte("x"))
					w.(http.Flusher).Flush()
					time.Sleep(10 * time.Millisecond)
				}
				return true
			}
		}, "fewer than 1000 bytes arrived in", 0},
		"many short connections": {func(s *site) func(int, http.ResponseWriter, *http.Request) bool {
			return func(_ int, w http.ResponseWriter, r *http.Request) bool {
				http.ServeContent(&cut{w, 10}, r, "", time.Time{}, bytes.NewReader(s.file))
				return true
			}
		}, "3 attempts failed", 3},
		"header without end": {func(*site) func(int, http.ResponseWriter, *http.Request) bool {
			return reply(200, "X-Long", strings.Repeat("x", 2<<20))
		}, "3 attempts failed", 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 100_000)
			s.fault = c.fault(s)
			o := s.options(t, t.TempDir())
			if name == "silent" || name == "too slow" {
				o.Patience = 300 * time.Millisecond
			}
			if name == "header without end" {
				transport := newClient(o).Transport.(*http.Transport).Clone()
				transport.MaxResponseHeaderBytes = 64 << 10
				o.Transport = transport
			}
			d, err := Open(t.Context(), s.URL+"/shop.mender", o)
			if err == nil {
				_, err = io.ReadAll(d)
				require.NoError(t, d.Close())
			}
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 500)
			if c.asked > 0 {
				require.Len(t, s.requests(), c.asked)
			}
		})
	}
}

// A server that sends more than it announced is not read further.
func TestTooMuch(t *testing.T) {
	s := newSite(t, 100_000)
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 0 {
			w.Header().Set("Content-Range", "bytes 50000-99999/100000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(s.file)
			return true
		}
		http.ServeContent(&cut{w, 50_000}, r, "", time.Time{}, bytes.NewReader(s.file))
		return true
	}
	d := s.open(t, t.TempDir())
	_, err := io.ReadAll(d)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "the server sends more than the 100000 bytes that it announced")
	require.NoError(t, d.Close())
}

func TestRefusedURLs(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	for u, want := range map[string]string{
		"http://example.com/a":             "is not https",
		"http://u:secret@example.com/a?t=": "http://example.com/a is not https",
		"ftp://example.com/a":              `the scheme "ftp" is not https`,
		"https:///a":                       "not a URL",
		"https://u:secret@exa mple.com/a":  "not a URL",
		"a":                                "not a URL",
	} {
		_, err := Open(t.Context(), u, o)
		require.ErrorIs(t, err, ErrURL, u)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	require.True(t, IsURL("https://example.com/a"))
	require.True(t, IsURL("http://example.com/a"))
	for _, file := range []string{"a", "-", "./https:/a", "/a", "https", "c:/a", "ftp://example.com/a", ""} {
		require.False(t, IsURL(file), file)
	}
}

// A server whose certificate nobody signed is not asked again.
func TestUnknownCertificate(t *testing.T) {
	s := newSite(t, 10)
	o := s.options(t, t.TempDir())
	o.Transport = nil
	_, err := Open(t.Context(), s.URL, o)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "certificate")
	require.NotContains(t, err.Error(), "attempts")
}

// No message and no file has a password or a token of the URL.
func TestSecretsOfURL(t *testing.T) {
	s, dir := newSite(t, 100_000), t.TempDir()
	var said strings.Builder
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		http.ServeContent(&cut{w, 40_000}, r, "", time.Time{}, bytes.NewReader(s.file))
		return n == 0 || n > 1
	}
	o := s.options(t, dir)
	o.Log = func(l string) { said.WriteString(l) }
	d, err := Open(t.Context(), strings.Replace(s.URL, "https://", "https://u:hunter2@", 1)+"/a?token=hunter3", o)
	require.NoError(t, err)
	_, err = io.ReadAll(d)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.Contains(t, said.String(), "/a: ")
	record, err := os.ReadFile(filepath.Join(dir, recordFile))
	require.NoError(t, err)
	for _, text := range []string{said.String(), string(record)} {
		require.NotContains(t, text, "hunter")
	}
	st, err := os.Stat(dir)
	require.NoError(t, err)
	require.EqualValues(t, 0o700, st.Mode().Perm())
}

// A server that is redirected to learns nothing of the first URL: neither its user and
// password nor, as Referer, its token.
func TestRedirectKeepsSecrets(t *testing.T) {
	s, other := newSite(t, 1000), newSite(t, 1000)
	other.file = s.file
	var heads []http.Header
	other.fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		heads = append(heads, r.Header.Clone())
		return false
	}
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		require.Equal(t, "hunter2", password)
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "hunter4"})
		http.Redirect(w, r, other.URL+"/elsewhere", http.StatusFound)
		return true
	}
	d, err := Open(t.Context(), strings.Replace(s.URL, "https://", "https://u:hunter2@", 1)+"/a?token=hunter3", s.options(t, t.TempDir()))
	require.NoError(t, err)
	_, err = io.ReadAll(d)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.Len(t, heads, 1)
	for name, values := range heads[0] {
		require.NotContains(t, strings.Join(values, " "), "hunter", name)
	}
	for _, name := range []string{"Authorization", "Cookie", "Referer"} {
		require.Empty(t, heads[0].Get(name), name)
	}
}

func TestNoRoom(t *testing.T) {
	s := newSite(t, 100_000)
	o := s.options(t, t.TempDir())
	full := errors.New("the disk is full")
	o.Room = func(bytes int64) error {
		require.EqualValues(t, 100_000, bytes)
		return full
	}
	_, err := Open(t.Context(), s.URL, o)
	require.ErrorIs(t, err, full)
	require.Len(t, s.requests(), 1)
	require.NoFileExists(t, filepath.Join(o.Dir, dataFile))
}

// What is reserved on the disk for the rest is given back.
func TestReservedSpace(t *testing.T) {
	s, dir := newSite(t, 1_000_000), t.TempDir()
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		http.ServeContent(&cut{w, 100_000}, r, "", time.Time{}, bytes.NewReader(s.file))
		return true
	}
	d := s.open(t, dir)
	_, err := io.CopyN(io.Discard, d, 50_000)
	require.NoError(t, err)
	blocks := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(dir, dataFile), &st))
		return st.Blocks * 512
	}
	if blocks() < 1_000_000 {
		t.Skip("the file system of temporary files reserves nothing")
	}
	require.NoError(t, d.Close())
	require.Less(t, blocks(), int64(200_000))
}

func TestCanceled(t *testing.T) {
	s := newSite(t, 100_000)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(s.file[:60_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	dir := t.TempDir()
	d, err := Open(ctx, s.URL+"/shop.mender", s.options(t, dir))
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, d, 60_000)
	require.NoError(t, err)
	time.AfterFunc(100*time.Millisecond, func() { cancel(stop) }) // while it waits for more
	_, err = io.Copy(io.Discard, d)
	require.ErrorIs(t, err, stop)
	require.NoError(t, d.Close())
	s.set(func() { s.fault = nil })
	d = s.open(t, dir)
	require.EqualValues(t, 60_000, d.Resumed())
	require.True(t, bytes.Equal(s.file, all(t, d)))
	require.NoError(t, d.Close())
}

// A rate is held over the whole download, and a pause is not caught up.
func TestMaxRate(t *testing.T) {
	const size, rate = 60_000, 40_000
	s := newSite(t, size)
	o := s.options(t, t.TempDir())
	o.MaxRate = rate
	began := time.Now()
	d, err := Open(t.Context(), s.URL+"/shop.mender", o)
	require.NoError(t, err)
	require.True(t, bytes.Equal(s.file, all(t, d)))
	require.NoError(t, d.Discard())
	require.GreaterOrEqual(t, time.Since(began), size*time.Second/rate)

	p := pace{rate: rate}
	require.NoError(t, p.wait(t.Context(), 1))
	p.due = p.due.Add(-time.Hour)
	began = time.Now()
	require.NoError(t, p.wait(t.Context(), rate/10))
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.wait(ctx, rate*3600), context.Canceled)
}

// TestSlowInAll: a server that always makes progress is given up when the download has taken
// too long in all. The next download goes on where it ended.
func TestSlowInAll(t *testing.T) {
	s := newSite(t, 100_000)
	slowly := func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(s.file)))
		for at := 0; at < len(s.file) && r.Context().Err() == nil; at += 2000 {
			_, _ = w.Write(s.file[at : at+2000])
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
		return true
	}
	s.set(func() { s.fault = slowly })
	dir := t.TempDir()
	o := s.options(t, dir)
	o.Whole = time.Second
	d, err := Open(t.Context(), s.URL+"/shop.mender", o)
	require.NoError(t, err)
	began := time.Now()
	got, err := io.ReadAll(d)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "it took longer than 1s in all. What has arrived is kept")
	require.Less(t, time.Since(began), 4*time.Second, "all of it takes five")
	require.NotEmpty(t, got)
	require.NoError(t, d.Close())
	s.set(func() { s.fault = nil })
	d = s.open(t, dir)
	require.Positive(t, d.Resumed())
	require.Equal(t, s.file, all(t, d))
	require.NoError(t, d.Discard())
}

// A server cannot have this device, or what is on its link, asked for anything.
func TestRedirectToThisDevice(t *testing.T) {
	own := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer own.Close()
	_, port, err := net.SplitHostPort(own.Listener.Addr().String())
	require.NoError(t, err)
	to := ""
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }))
	defer mirror.Close()
	transport := NewTransport(time.Second)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "mirror.example:80" {
			address = mirror.Listener.Addr().String()
		}
		return dial(ctx, network, address)
	}
	for _, to = range []string{"http://127.0.0.1:" + port, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port, "http://169.254.169.254/latest", "http://[fe80::1%25lo]:" + port} {
		o := Defaults()
		o.Dir, o.PlainHTTP, o.Transport, o.Room = t.TempDir(), true, transport, func(int64) error { return nil }
		_, err = Open(t.Context(), "http://mirror.example/a", o)
		require.ErrorIs(t, err, ErrFailed, to)
		require.ErrorContains(t, err, "which is this device or its link", to)
	}
	for _, to = range []string{"file:///etc/shadow", "ftp://127.0.0.1/", "gopher://127.0.0.1/"} {
		o := Defaults()
		o.Dir, o.PlainHTTP, o.Transport, o.Attempts = t.TempDir(), true, transport, 1
		_, err = Open(t.Context(), "http://mirror.example/a", o)
		require.ErrorIs(t, err, ErrFailed, to)
	}
}
