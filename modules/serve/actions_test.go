package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// commands runs nothing, and notes what it should run.
type commands struct {
	mu   sync.Mutex
	list []Command
	ran  Ran
	err  error
	wait chan struct{} // it ends when this is closed; nil: at once
}

func (c *commands) run(ctx context.Context, cmd Command) (Ran, error) {
	c.mu.Lock()
	c.list = append(c.list, cmd)
	ran, err, wait := c.ran, c.err, c.wait
	c.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return Ran{Code: 124, Error: "stopped"}, nil
		}
	}
	return ran, err
}

// acting is a server that takes actions, and its socket.
func acting(t *testing.T, idle time.Duration) (s *Server, c *commands, path string, done chan error) {
	t.Helper()
	s, _ = shop(t)
	c = &commands{ran: Ran{Out: []byte(`{"application":"shop","state":"stopped"}`)}}
	s.Actions = &Actions{Group: 4242, Run: c.run, UserName: func(uint32) string { return "anna" }}
	path, done = running(t, s, idle)
	return s, c, path, done
}

// post asks for an action over a socket.
func post(t *testing.T, socket, path, body string, head ...string) (status int, answer string) {
	t.Helper()
	status, answer, err := posted(socket, path, body, head...)
	require.NoError(t, err)
	return status, answer
}

func posted(socket, path, body string, head ...string) (int, string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	r, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// Each action runs its command with what the request gives, and nothing else.
func TestActions(t *testing.T) {
	_, c, socket, _ := acting(t, 0)
	file := t.TempDir() + "/a.mender"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, one := range []struct{ path, body, args string }{
		{"/v1/apps/shop/stop", `{}`, "stop --json -- shop"},
		{"/v1/apps/shop/start", `{}`, "start --json -- shop"},
		{"/v1/apps/shop/rollback", `{}`, "rollback --json -- shop"},
		{"/v1/apps/shop/rollback", `{"release":"1"}`, "rollback --json -- shop 1"},
		{"/v1/apps/shop/abort", `{}`, "abort --json -- shop"},
		{"/v1/stage", `{"source":"https://example.com/a b.mender"}`, "stage --json --source-stdin -- < https://example.com/a b.mender"},
		{"/v1/stage", `{"source":"` + file + `"}`, "stage --json --source-stdin -- < " + file},
		{"/v1/stage", `{"source":"` + file + `","load":true}`, "stage --json --load --source-stdin -- < " + file},
		{"/v1/stage", `{"source":"` + file + `","load":false}`, "stage --json --source-stdin -- < " + file},
		{"/v1/check", `{"source":"https://example.com/a"}`, "check --json --source-stdin -- < https://example.com/a"},
		{"/v1/check", `{"staged":"shop","version":"2"}`, "check --json --staged=shop -- 2"},
		{"/v1/hold", `{"reason":"a film","for":"2h"}`, "hold --json --reason=a film --for=2h --"},
		{"/v1/unhold", `{"reason":"a film"}`, "unhold --json --reason=a film --"},
		{"/v1/unhold", `{}`, "unhold --json --"},
	} {
		status, body := post(t, socket, one.path, one.body)
		require.Equal(t, 200, status, body)
		last := c.list[len(c.list)-1]
		args := strings.Join(last.Args(), " ")
		if last.Source != "" {
			args += " < " + last.Source.Reveal()
		}
		require.Equal(t, one.args, args)
		require.Equal(t, "anna", last.User)
		var a Action
		require.NoError(t, json.Unmarshal([]byte(body), &a))
		require.JSONEq(t, string(c.ran.Out), string(a.Result))
		require.Zero(t, *a.ExitCode)
	}
	for code, want := range map[int]int{1: 500, 2: 400, 3: 503, 4: 404, 7: 507, 9: 409, 75: 409} {
		c.ran = Ran{Code: code, Error: "it is so", Out: []byte(`{"findings":[]}`)}
		status, body := post(t, socket, "/v1/apps/shop/stop", `{}`)
		require.Equal(t, want, status)
		var p Problem
		require.NoError(t, json.Unmarshal([]byte(body), &p))
		require.Equal(t, "it is so", p.Error)
		require.Equal(t, code, *p.Action.ExitCode)
		require.JSONEq(t, `{"findings":[]}`, string(p.Action.Result))
	}
	c.ran, c.err = Ran{Code: 1, Out: []byte("no JSON")}, errors.New("it cannot be started")
	status, body := post(t, socket, "/v1/apps/shop/stop", `{}`)
	require.Equal(t, 500, status)
	require.Contains(t, body, "it cannot be started")
}

// What is not a plain request for an action is refused before anything runs.
func TestHostileActions(t *testing.T) {
	s, c, socket, _ := acting(t, 0)
	for _, one := range []struct {
		path, body string
		want       int
		head       []string
	}{
		{"/v1/apps/shop/stop", `{}`, 415, []string{"Content-Type", "text/plain"}},
		{"/v1/apps/shop/stop", `{}`, 415, []string{"Content-Type", ""}},
		{"/v1/apps/shop/stop", `{}`, 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"/v1/apps/shop/stop", `{}`, 403, []string{"Origin", "http://attacker.example"}},
		{"/v1/apps/shop/stop", `{"release":"1"}`, 400, nil},
		{"/v1/apps/shop/stop", `[]`, 400, nil},
		{"/v1/apps/shop/stop", ``, 400, nil},
		{"/v1/apps/shop/stop", `{} {}`, 400, nil},
		{"/v1/apps/shop/stop?force=1", `{}`, 400, nil},
		{"/v1/apps/--help/stop", `{}`, 400, nil},
		{"/v1/apps/..%2fx/stop", `{}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":"--help"}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":"a\nb"}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":7}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":"` + strings.Repeat("x", maxText+1) + `"}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":"` + strings.Repeat("x", maxBody) + `"}`, 413, nil},
		{"/v1/apps/shop/rollback", `{"release":"--help","release":null}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":null}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":"1","release":"1"}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":"1","Release":"2"}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"RELEASE":"--help"}`, 400, nil},
		{"/v1/apps/shop/rollback", `{"release":"a\u202eb"}`, 400, nil},
		{"/v1/apps/shop/stop", `null`, 400, nil},
		{"/v1/check", `{"staged":"shop","version":"--key=/dev/zero","version":null}`, 400, nil},
		{"/v1/stage", `{}`, 400, nil},
		{"/v1/stage", `{"source":"-"}`, 400, nil},
		{"/v1/stage", `{"source":"https://example.com/a","load":"true"}`, 400, nil},
		{"/v1/stage", `{"source":true}`, 400, nil},
		{"/v1/check", `{"source":"https://example.com/a","load":true}`, 400, nil},
		{"/v1/stage", `{"source":"a.mender"}`, 400, nil},
		{"/v1/stage", `{"source":"/dev/zero"}`, 400, nil},
		{"/v1/stage", `{"source":"ftp://example.com/a"}`, 400, nil},
		{"/v1/check", `{"source":"/etc/passwd","staged":"shop"}`, 400, nil},
		{"/v1/check", `{"staged":"-x"}`, 400, nil},
		{"/v1/apps/shop/purge", `{}`, 405, nil},
		{"/v1/apps/shop", `{}`, 405, nil},
	} {
		status, body := post(t, socket, one.path, one.body, one.head...)
		require.Equal(t, one.want, status, "%s %s: %s", one.path, one.body, body)
		require.Contains(t, body, `"error":"`)
	}
	answer := say(t, socket, "GET /v1/apps/shop/stop HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	require.Contains(t, answer, " 405 ")
	require.Contains(t, answer, "Allow: POST")
	answer = say(t, socket, "POST /v1/apps/shop/stop HTTP/1.1\r\nHost: attacker.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
	require.Contains(t, answer, " 403 ")

	tcp := httptest.NewServer(s.Handler(t.Context()))
	defer tcp.Close()
	r, err := http.Post(tcp.URL+"/v1/apps/shop/stop", "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	text, _ := io.ReadAll(r.Body)
	r.Body.Close()
	require.Equal(t, 403, r.StatusCode)
	require.Contains(t, string(text), "only over the unix socket")

	silent, _ := shop(t)
	path, _ := running(t, silent, 0)
	status, body := post(t, path, "/v1/apps/shop/stop", "{}")
	require.Equal(t, 403, status)
	require.Contains(t, body, "--allow-actions")
	require.Empty(t, c.list, "nothing ran")
}

// as calls f in a thread that belongs to another user.
func as(t *testing.T, uid, gid uintptr, groups []uint32, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		var first unsafe.Pointer
		if len(groups) > 0 {
			first = unsafe.Pointer(&groups[0])
		}
		_, _, e1 := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0)
		_, _, e2 := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid)
		_, _, e3 := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid)
		if e := max(e1, e2, e3); e != 0 {
			done <- e
			return
		}
		f()
		done <- nil
	}()
	require.NoError(t, <-done)
}

// Only root and the group are let in, as the kernel says who asks.
func TestPeers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	dir, err := os.MkdirTemp("", "mender-app-peers-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket := dir + "/s"
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(socket, 0o777)))
	for _, one := range []struct {
		uid, gid uintptr
		groups   []uint32
		want     bool
	}{
		{0, 0, nil, true}, {65534, 65534, nil, false}, {65534, 4242, nil, true}, {65534, 65534, []uint32{7, 4242}, true}, {65534, 0, []uint32{0, 7}, false},
	} {
		var c net.Conn
		as(t, one.uid, one.gid, one.groups, func() { c, err = net.Dial("unix", socket) })
		require.NoError(t, err)
		accepted, err := l.Accept()
		require.NoError(t, err)
		p, _ := withPeer(t.Context(), &connection{Conn: accepted}).Value(peerKey{}).(*Peer)
		require.NotNil(t, p)
		require.Equal(t, one.want, p.In(4242), one)
		require.EqualValues(t, one.uid, p.UID)
		require.True(t, one.groups == nil || slices.Equal(one.groups, p.Groups[1:]), "%v", p.Groups)
		require.NoError(t, errors.Join(c.Close(), accepted.Close()))
	}
	require.Nil(t, withPeer(t.Context(), &net.TCPConn{}).Value(peerKey{}))
}

// One user cannot take all the room of the others.
func TestActionsOfOneUser(t *testing.T) {
	c := &commands{wait: make(chan struct{})}
	defer close(c.wait)
	actions := &Actions{Run: c.run, ctx: t.Context(), quiet: newQuiet(0)}
	begin := func(uid uint32, action string) error {
		_, err := actions.begin(Action{Action: action, uid: uid}, Command{}, time.Hour)
		return err
	}
	for range maxOfOne {
		require.NoError(t, begin(1000, "stage"))
	}
	require.ErrorContains(t, begin(1000, "stage"), "3 of your actions are at work")
	require.NoError(t, begin(1000, abort))
	require.NoError(t, begin(1001, "stop"))
	require.ErrorContains(t, begin(0, "stop"), "too many actions are at work")
}

// An action that takes long is answered with where it can be seen, goes on without the
// client, keeps the server from ending for want of requests, and is ended with it. There
// are not many at a time.
func TestLongActions(t *testing.T) {
	s, c, socket, done := acting(t, 300*time.Millisecond)
	c.wait = make(chan struct{})
	for range maxActions {
		conn, err := net.Dial("unix", socket)
		require.NoError(t, err)
		_, err = io.WriteString(conn, "POST /v1/apps/shop/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		require.NoError(t, err)
		defer conn.Close()
	}
	require.Eventually(t, func() bool { return len(s.Actions.copies()) == maxActions }, 10*time.Second, 10*time.Millisecond)
	status, body := post(t, socket, "/v1/hold", "{}")
	require.Equal(t, 503, status, body)
	require.Contains(t, body, "/v1/actions")
	// There is always room for one abort.
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /v1/apps/shop/abort HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(s.Actions.copies()) == maxActions+1 }, 10*time.Second, 10*time.Millisecond)
	status, body = post(t, socket, "/v1/apps/shop/abort", "{}")
	require.Equal(t, 503, status, body)
	select {
	case <-done:
		t.Fatal("it ends while actions are at work")
	case <-time.After(600 * time.Millisecond):
	}
	ask := func(path string) string {
		return say(t, socket, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	}
	body = ask("/v1/actions")
	require.Contains(t, body, " 200 ")
	require.Equal(t, maxActions, strings.Count(body, `"action":"stop"`))
	require.NotContains(t, body, "exit_code")
	require.Contains(t, ask("/v1/actions/1"), " 200 ")
	require.Contains(t, ask("/v1/actions/99"), " 404 ")
	close(c.wait)
	require.NoError(t, <-done, "it ends when they have")
	for _, a := range s.Actions.copies() {
		require.Zero(t, *a.ExitCode)
	}
	if testing.Short() {
		return // what follows waits
	}
	_, c, socket, _ = acting(t, 0)
	c.wait = make(chan struct{})
	defer close(c.wait)
	status, body = post(t, socket, "/v1/apps/shop/stop", "{}")
	require.Equal(t, 202, status, body)
}

// An action has a limit of time.
func TestActionLimit(t *testing.T) {
	s, c, socket, _ := acting(t, 0)
	post(t, socket, "/v1/unhold", "{}") // it is at work
	c.wait = make(chan struct{})
	a, err := s.Actions.begin(Action{Action: "check"}, Command{Verb: "check"}, 20*time.Millisecond)
	require.NoError(t, err)
	<-a.done
	require.Contains(t, a.Error, "it was stopped after 20ms")
}

// The server remembers the last actions, and those at work.
func TestRememberedActions(t *testing.T) {
	s, _, socket, _ := acting(t, 0)
	for range maxRemembered + 5 {
		status, _ := post(t, socket, "/v1/unhold", "{}")
		require.Equal(t, 200, status)
	}
	list := s.Actions.copies()
	require.LessOrEqual(t, len(list), maxRemembered+1)
	require.EqualValues(t, maxRemembered+5, list[0].Number)
}
