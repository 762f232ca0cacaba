package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// asking returns a function that asks for a path on a unix socket.
func asking(t *testing.T, socket string) func(path string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	return func(path string) string {
		t.Helper()
		r, err := client.Get("http://localhost" + path)
		require.NoError(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(body)
	}
}

// serve says what the commands print, over a socket of its own, one that systemd gives
// it, and TCP with a token.
func TestServe(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web"}}
	require.NoError(t, a.Write(d.Dir+"/v1.mender"))
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)

	socket := filepath.Join(d.Dir, "s")
	cmd := d.Command("mender-app", "serve", "--socket", socket)
	said := start(t, cmd)
	ask := asking(t, socket)
	for path, args := range map[string][]string{
		"/v1/apps":                         {"status"},
		"/v1/apps/shop/releases":           {"releases", "shop"},
		"/v1/apps/shop/deployments":        {"history", "shop"},
		"/v1/apps/shop/deployments/1":      {"history", "shop", "1"},
		"/v1/apps/shop/deployments/1/logs": {"logs", "shop", "--deployment", "1"},
	} {
		want, stderr, err := d.Run(nil, "mender-app", append(args, "--json")...)
		require.NoError(t, err, stderr)
		if args[0] == "logs" { // lines
			want = "[" + strings.ReplaceAll(strings.TrimSpace(want), "\n", ",") + "]"
		}
		require.JSONEq(t, want, ask(path), path)
	}
	var queue struct{ Hold json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(ask("/v1/queue")), &queue))
	want, _, err := d.Run(nil, "mender-app", "hold", "--show", "--json")
	require.NoError(t, err)
	require.JSONEq(t, want, string(queue.Hold))
	st, err := os.Stat(socket)
	require.NoError(t, err)
	require.Zero(t, st.Mode().Perm()&0o007, "no stranger may use it")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), said)

	// The socket is there before the program, and stays.
	l, err := net.Listen("unix", filepath.Join(d.Dir, "activated"))
	require.NoError(t, err)
	f, err := l.(*net.UnixListener).File()
	require.NoError(t, err)
	cmd = d.Command("mender-app", "serve", "--idle", "200ms")
	cmd.ExtraFiles = []*os.File{f}
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	start(t, cmd)
	require.Contains(t, asking(t, l.Addr().String())("/healthz"), `"ok":true`)
	require.NoError(t, cmd.Wait(), "it ends by itself")
	require.FileExists(t, l.Addr().String())

	require.NoError(t, os.WriteFile(d.Dir+"/token", []byte("0123456789abcdef\n"), 0o600))
	cmd = d.Command("mender-app", "serve", "--listen", "127.0.0.1:0", "--token-file", "token")
	address := start(t, cmd)
	for token, want := range map[string]int{"": 401, "0123456789abcdef": 200} {
		req, err := http.NewRequest(http.MethodGet, "http://"+address+"/v1/apps", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		r, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		r.Body.Close()
		require.Equal(t, want, r.StatusCode)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait())
}

// start starts serve, and returns the address on which it listens.
func start(t *testing.T, cmd *exec.Cmd) (address string) {
	t.Helper()
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { late.Stop(); _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, address, ok := strings.Cut(lines.Text(), "listening (address "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return strings.TrimSuffix(address, ")")
		}
	}
	t.Fatal("it does not listen")
	return ""
}

// With --allow-actions the server runs the commands, which say who asked.
func TestServeActions(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web"}}
	require.NoError(t, a.Write(d.Dir+"/v1.mender"))
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)
	socket := filepath.Join(d.Dir, "s")
	cmd := d.Command("mender-app", "serve", "--socket", socket, "--allow-actions")
	start(t, cmd)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	post := func(path, body string) (int, string) {
		t.Helper()
		r, err := client.Post("http://localhost"+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}
	for _, one := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/hold", `{"reason":"a film","for":"1h"}`, 200, `"held":true`},
		{"/v1/apps/shop/stop", `{}`, 409, "a film"},
		{"/v1/unhold", `{}`, 200, `"held":false`},
		{"/v1/apps/shop/stop", `{}`, 200, `"state":"stopped"`},
		{"/v1/apps/shop/start", `{}`, 200, `"state":"installed"`},
		{"/v1/apps/shop/rollback", `{}`, 500, "no older release is kept"},
		{"/v1/apps/shop/abort", `{}`, 404, "no update is open"},
		{"/v1/apps/none/stop", `{}`, 404, "no such application"},
		{"/v1/check", `{"source":"` + d.Dir + `/v1.mender"}`, 200, `"findings":[`},
		{"/v1/stage", `{"source":"` + d.Dir + `/v1.mender"}`, 200, `"artifact_name":"shop-1"`},
		{"/v1/stage", `{"source":"` + d.Dir + `/store/shop/app.json"}`, 409, `"exit_code":5`},
		{"/v1/hold", `{"for":"soon"}`, 400, `"exit_code":2`},
	} {
		status, body := post(one.path, one.body)
		require.Equal(t, one.status, status, "%s %s: %s", one.path, one.body, body)
		require.Contains(t, body, one.says)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}

// The user, password and token of a source are in no list of processes, log, answer, metric
// or file, while the command works and afterwards.
func TestSecretsOfSources(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	site, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	connected := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := site.Accept()
			if err != nil {
				return
			}
			connected <- c // it never answers
		}
	}()
	source := "https://canary-user:canary-password@" + site.Addr().String() + "/shop.mender?token=canary-token"
	socket := filepath.Join(d.Dir, "s")
	cmd := d.Command("mender-app", "serve", "--socket", socket, "--allow-actions")
	logged := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(logged)
	require.NoError(t, err)
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Eventually(t, func() bool { _, err := os.Stat(socket); return err == nil }, time.Minute, 10*time.Millisecond)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	body, err := json.Marshal(map[string]string{"source": source})
	require.NoError(t, err)
	var seen strings.Builder // whatever anybody can see
	for _, path := range []string{"/v1/stage", "/v1/check"} {
		answered := make(chan string, 1)
		go func() {
			r, err := client.Post("http://localhost"+path, "application/json", bytes.NewReader(body))
			if err != nil {
				answered <- err.Error()
				return
			}
			defer r.Body.Close()
			text, _ := io.ReadAll(r.Body)
			answered <- string(text)
		}()
		c := <-connected // the command is at work
		for _, file := range []string{"cmdline", "environ"} {
			names, err := filepath.Glob("/proc/[0-9]*/" + file)
			require.NoError(t, err)
			for _, name := range names {
				text, _ := os.ReadFile(name) // a process may be gone, or another user's
				require.NotContains(t, string(text), "canary", name)
			}
		}
		seen.WriteString(<-answered)
		require.NoError(t, c.Close())
	}
	require.NoError(t, site.Close())
	for _, path := range []string{"/v1/actions", "/metrics", "/v1/apps"} {
		r, err := client.Get("http://localhost" + path)
		require.NoError(t, err)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		seen.Write(text)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // a command was at work
	require.NoError(t, log.Close())
	text, err := os.ReadFile(logged)
	require.NoError(t, err)
	require.Contains(t, string(text), "/shop.mender")
	seen.Write(text)
	for _, args := range [][]string{
		{"stage", source, "more"}, {"check", "https://canary:canary@ex ample.com/"}, {source}, {"history"}, {"metrics"}, {"--json", "status"}} {
		stdout, stderr, _ := d.Run(nil, "mender-app", args...)
		seen.WriteString(stdout + stderr)
	}
	require.NotContains(t, seen.String(), "canary")
	require.NoError(t, filepath.WalkDir(d.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotContains(t, string(text), "canary", name)
		return nil
	}))
}
