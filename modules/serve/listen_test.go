package serve

import (
	"bufio"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
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
	const ask = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
	require.Contains(t, say(t, path, ask+"\r\n"), `{"ok":true`)
	require.Contains(t, say(t, path, ask+"X: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"), " 431 ")
	require.Contains(t, say(t, path, "GET /"+strings.Repeat("x", 64<<10)+" HTTP/1.1\r\n\r\n"), " 431 ")
	require.Contains(t, say(t, path, "nonsense\r\n\r\n"), " 400 ")
	require.Contains(t, say(t, path, "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), " 400 ")
	require.Contains(t, say(t, path, "GET /v1/../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), " 307 ", "to a path without dots")
	require.Contains(t, say(t, path, "POST /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"), " 405 ")
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
	_, err = io.WriteString(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
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
