package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// --watch prints the status whenever it changes, and Ctrl-C ends it well.
func TestStatusWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the next look; left out of -short")
	}
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web"}}
	require.NoError(t, a.Write(d.Dir+"/v1.mender"))
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)
	running := filepath.Join(d.Dir, "fake", "running", "shop")
	well, err := os.ReadFile(running)
	require.NoError(t, err)

	cmd := d.Command("mender-app", "status", "shop", "--watch", "--json")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), `"health":"healthy"`)
	require.NoError(t, os.WriteFile(running, append(well, "sick\n"...), 0o644))
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), `"health":"unhealthy"`)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.False(t, lines.Scan(), "nothing is printed that has not changed")
	require.NoError(t, cmd.Wait())

	// A terminal is cleared, and has room for every line.
	screen, terminal := devicetest.OpenTerminal(t, 80)
	cmd = d.Command("mender-app", "status", "--watch")
	cmd.Stdout = terminal
	require.NoError(t, cmd.Start())
	require.NoError(t, terminal.Close())
	first, err := bufio.NewReader(screen).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(first, "\x1b[H\x1b[2J"), "%q", first)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_, _ = io.Copy(io.Discard, screen)
	require.NoError(t, cmd.Wait())
}
