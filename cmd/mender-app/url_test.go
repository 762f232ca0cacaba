package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// releases is an HTTPS server for the artifacts of a device, and the environment in
// which a program trusts it.
type releases struct {
	*httptest.Server
	env []string

	mu    sync.Mutex
	stall int64 // the connection is silent after this many bytes; 0: it is not
	asked []string
}

func serveReleases(t *testing.T, dir string) *releases {
	s := &releases{}
	files := http.FileServer(http.Dir(dir))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		stall := s.stall
		s.asked = append(s.asked, r.Header.Get("Range"))
		s.mu.Unlock()
		if stall > 0 {
			w = &stalling{w, r, stall}
		}
		files.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that end early
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644))
	s.env = []string{"SSL_CERT_FILE=" + roots}
	return s
}

func (s *releases) stallAfter(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall, s.asked = bytes, nil
}

func (s *releases) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// stalling is silent after some bytes, until the client goes away.
type stalling struct {
	http.ResponseWriter
	r    *http.Request
	left int64
}

func (s *stalling) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p[:min(int64(len(p)), s.left)])
	if s.left -= int64(n); s.left > 0 || err != nil {
		return n, err
	}
	s.ResponseWriter.(http.Flusher).Flush()
	<-s.r.Context().Done()
	return n, errors.New("the client is gone")
}

// An artifact is installed from a server. After Ctrl-C and after a kill the same
// command asks for the rest only.
func TestInstallFromURL(t *testing.T) {
	if testing.Short() {
		t.Skip("writes artifacts of 30 MB")
	}
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	random := make([]byte, 15_000_000) // more than is made durable at once
	_, err = rand.Read(random)
	require.NoError(t, err)
	for i, compose := range []string{"one", "two"} {
		a := devicetest.Artifact{Name: fmt.Sprint("shop-", i+1), App: "shop", Compose: compose, Images: []string{"web:1=" + compose + hex.EncodeToString(random)}}
		require.NoError(t, a.Write(filepath.Join(d.Dir, fmt.Sprintf("v%d.mender", i+1))))
	}
	s := serveReleases(t, d.Dir)
	install := func(more ...string) *exec.Cmd {
		cmd := d.Command("mender-app", append([]string{"install", "--commit"}, more...)...)
		cmd.Env = append(cmd.Env, s.env...)
		return cmd
	}
	kept := filepath.Join(d.Dir, "store", ".mender-app", "download")

	out, err := install(s.URL + "/v1.mender").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "installed and committed shop-1")
	require.Equal(t, []string{""}, s.requests())
	require.Empty(t, artifactFiles(t, kept), "the artifact is not kept")

	// Interrupted after 10 MB: all of it is kept, and the rest is asked for.
	const interrupted, killed = 10_000_000, 2_000_000
	s.stallAfter(interrupted)
	cmd := install(s.URL + "/v2.mender")
	var text strings.Builder
	cmd.Stderr = &text
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return size(kept) >= interrupted }, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), text.String())
	require.Contains(t, text.String(), "interrupted: nothing was changed; installed is shop-1")
	require.Equal(t, "one", d.Running("shop"))

	// Killed: what was durable before is kept.
	s.stallAfter(killed)
	cmd = install(s.URL + "/v2.mender")
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return size(kept) >= interrupted+killed }, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Equal(t, []string{fmt.Sprintf("bytes=%d-", interrupted)}, s.requests())
	_, stderr, err := d.Run(nil, "mender-app", "resume")
	require.NoError(t, err, stderr)
	require.Equal(t, "one", d.Running("shop"))

	s.stallAfter(0)
	out, err = install(s.URL + "/v2.mender").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "going on where an earlier download ended")
	require.Equal(t, []string{fmt.Sprintf("bytes=%d-", interrupted)}, s.requests())
	require.Equal(t, "two", d.Running("shop"))
	require.Empty(t, artifactFiles(t, kept))
}

// size is the size of what has arrived.
func size(dir string) int64 {
	st, err := os.Stat(filepath.Join(dir, "artifact"))
	if err != nil {
		return 0
	}
	return st.Size()
}

// artifactFiles are the files of a download, but for its lock.
func artifactFiles(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// What cannot be installed from a URL leaves nothing behind.
func TestInstallFromBadURL(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"v1.mender", "v2.mender"} {
		require.NoError(t, devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web"}}.Write(filepath.Join(d.Dir, name)))
	}
	damaged, err := os.ReadFile(filepath.Join(d.Dir, "v2.mender"))
	require.NoError(t, err)
	damaged[len(damaged)-2500] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "v2.mender"), damaged, 0o644))
	s := serveReleases(t, d.Dir)
	for name, c := range map[string]struct {
		url  string
		env  []string
		code int
		said string
	}{
		"not there":          {s.URL + "/v9.mender", s.env, 1, "the download failed: " + s.URL + "/v9.mender: the server answers 404 Not Found"},
		"damaged":            {s.URL + "/v2.mender", s.env, 5, "error: "},
		"unknown server":     {s.URL + "/v1.mender", nil, 1, "certificate"},
		"http without a key": {"http://127.0.0.1:1/v1.mender", s.env, 2, "http://127.0.0.1:1/v1.mender is not https"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, err := d.Run(c.env, "mender-app", "install", c.url)
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, c.code, exit.ExitCode(), stderr)
			require.Contains(t, stderr, c.said)
			require.Empty(t, artifactFiles(t, filepath.Join(d.Dir, "store", ".mender-app", "download")))
			require.Empty(t, d.Running("shop"))
		})
	}
}

// The proxy that the environment names is used.
func TestInstallThroughProxy(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web"}}.Write(filepath.Join(d.Dir, "v1.mender")))
	s := serveReleases(t, d.Dir)
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		server, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			return
		}
		defer server.Close()
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(server, client) }()
		_, _ = io.Copy(client, server)
	}))
	t.Cleanup(proxy.Close)
	// The name is in the certificate of the test's server.
	stdout, stderr, err := d.Run(append(s.env, "HTTPS_PROXY="+proxy.URL), "mender-app", "install", "https://example.com/v1.mender")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "installed shop-1")
	require.Equal(t, "CONNECT example.com:443", <-asked)
}
