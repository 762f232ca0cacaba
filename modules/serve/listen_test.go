package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// running serves on a unix socket until the test ends.
func running(t *testing.T, s *Server, idle time.Duration) (path string, done chan error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done = make(chan error, 1)
	go func() { done <- s.Serve(ctx, idle, Listener{Listener: l}) }()
	t.Cleanup(cancel)
	return path, done
}

// say sends text on a connection of its own, and returns what is answered.
func say(t *testing.T, path, text string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = io.WriteString(c, text)
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// Clients who do not keep to the rules get an error or are cut off; the others are
// answered meanwhile, and all of it ends.
func TestHostileClients(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the limits of slow clients; left out of -short")
	}
	s, _ := shop(t)
	path, done := running(t, s, time.Second)
	const ask = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
	require.Contains(t, say(t, path, ask+"\r\n"), `{"ok":true`)
	require.Contains(t, say(t, path, ask+"X: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"), " 431 ")
	require.Contains(t, say(t, path, "GET /"+strings.Repeat("x", 64<<10)+" HTTP/1.1\r\n\r\n"), " 431 ")
	require.Contains(t, say(t, path, "nonsense\r\n\r\n"), " 400 ")
	require.Contains(t, say(t, path, "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), " 400 ")
	require.Contains(t, say(t, path, "GET /v1/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), " 307 ", "to a path without dots")
	require.Contains(t, say(t, path, "POST /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"), " 405 ")
	// As many as there may be say nothing, and are cut off.
	for range maxConnections {
		c, err := net.Dial("unix", path)
		require.NoError(t, err)
		defer c.Close()
		_, _ = io.WriteString(c, "GET /he")
	}
	start := time.Now()
	require.Contains(t, say(t, path, ask+"\r\n"), `{"ok":true`)
	require.Less(t, time.Since(start), 2*headerLimit)
	select {
	case err := <-done: // nobody asks
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end when it is idle")
	}
}

// A reader of events is a request that is at work; when it goes, the server is idle.
func TestIdle(t *testing.T) {
	s, _ := shop(t)
	path, done := running(t, s, 100*time.Millisecond)
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	_, err = io.WriteString(c, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	_, err = bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	select {
	case <-done:
		t.Fatal("it ends while somebody reads")
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, c.Close())
	require.NoError(t, <-done)
}

// dialAs opens connections as another user.
func dialAs(t *testing.T, path string, uid, count int) (list []net.Conn) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		for range count {
			c, err := net.Dial("unix", path)
			if err != nil {
				done <- err
				return
			}
			list = append(list, c)
		}
		done <- nil
	}()
	require.NoError(t, <-done)
	return list
}

// forEverybody serves, until the test ends, on a unix socket that every user may connect to.
func forEverybody(t *testing.T, s *Server) (path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	dir, err := os.MkdirTemp("", "mender-app-serve-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path = filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o666))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, 0, Listener{Listener: l}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return path
}

// One user who opens connections without end takes none from others.
func TestOneUserOfMany(t *testing.T) {
	s, _ := shop(t)
	path := forEverybody(t, s)
	const ask = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	greedy := dialAs(t, path, 65534, 5*maxConnections)
	for _, c := range greedy {
		defer c.Close()
	}
	start := time.Now()
	other := dialAs(t, path, 65533, 1)[0]
	defer other.Close()
	require.NoError(t, other.SetDeadline(time.Now().Add(20*time.Second)))
	_, err := io.WriteString(other, ask)
	require.NoError(t, err)
	line, err := bufio.NewReader(other).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, " 200 ")
	require.Less(t, time.Since(start), headerLimit, "it had to wait until others were cut off")

	last := greedy[len(greedy)-1]
	require.NoError(t, last.SetDeadline(time.Now().Add(20*time.Second)))
	answer, _ := io.ReadAll(last)
	require.Contains(t, string(answer), " 503 ")
	require.Contains(t, string(answer), `{"error":"you have 32 connections open, and may have no more: close some","status":503}`)
}

// counts are how many requests of a user are there, how many of those are at work, and how
// many are at work in all.
func (s *slots) counts(user int64) (there, busy, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine := s.users[user]; mine != nil {
		there, busy = mine.wait, len(mine.busy)
	}
	return there, busy, len(s.all)
}

// One user whose requests all wait leaves others room to be answered.
func TestRequestsOfOneUser(t *testing.T) {
	s, m := shop(t)
	m.wait = make(chan struct{})
	path := forEverybody(t, s)
	const ask = "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	greedy := dialAs(t, path, 65534, 2*maxBusy)
	for _, c := range greedy {
		defer c.Close()
		_, err := fmt.Fprintf(c, ask, "/v1/apps/shop")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		there, busy, all := s.slots.counts(65534)
		return there == len(greedy) && busy == maxBusyOfUser && all == maxBusyOfUser
	}, 10*time.Second, time.Millisecond)
	for _, uid := range []int{65533, 0} {
		other := dialAs(t, path, uid, 1)[0]
		_, err := fmt.Fprintf(other, ask, "/v1/apps/shop/releases")
		require.NoError(t, err)
		answer, err := io.ReadAll(other)
		require.NoError(t, err)
		require.NoError(t, other.Close())
		require.Contains(t, string(answer), " 200 ")
	}
	close(m.wait)
	for _, c := range greedy {
		answer, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Contains(t, string(answer), " 200 ", "they waited, and were answered")
	}
	require.Eventually(t, func() bool {
		there, _, all := s.slots.counts(65534)
		return there == 0 && all == 0
	}, 10*time.Second, time.Millisecond)
}

// One user who holds streams of events open leaves others room for theirs.
func TestStreamsOfOneUser(t *testing.T) {
	s, _ := shop(t)
	path := forEverybody(t, s)
	status := func(c net.Conn) string {
		_, err := io.WriteString(c, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		return line
	}
	greedy := dialAs(t, path, 65534, maxStreamsOfUser+1)
	for i, c := range greedy {
		defer c.Close()
		want := " 200 "
		if i == maxStreamsOfUser {
			want = " 503 "
		}
		require.Contains(t, status(c), want)
	}
	for _, uid := range []int{65533, 0} {
		other := dialAs(t, path, uid, 1)[0]
		defer other.Close()
		require.Contains(t, status(other), " 200 ")
	}
}
