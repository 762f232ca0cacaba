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

// installed is a device with an application.
func installed(t *testing.T) *devicetest.Device {
	t.Helper()
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web"}}
	require.NoError(t, a.Write(d.Dir+"/v1.mender"))
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)
	return d
}

// A service cannot command the terminal with what it writes. In a pipe and as JSON
// its words are as it wrote them.
func TestLogsOnATerminal(t *testing.T) {
	d := installed(t)
	const said = "{\"service\":\"web\",\"instance\":\"shop-web-1\",\"stream\":\"stdout\",\"line\":\"\\u001b[32mgood\\u001b[0m \\u001b]0;owned\\u0007\\u009b2J \\u202etxt\"}\n"
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "fake", "logs"), []byte(said), 0o644))

	screen, terminal := devicetest.OpenTerminal(t, 80)
	cmd := d.Command("mender-app", "logs", "shop")
	cmd.Stdout = terminal
	require.NoError(t, cmd.Run())
	require.NoError(t, terminal.Close())
	text, _ := io.ReadAll(screen) // ends with EIO
	require.Equal(t, `shop-web-1 | good \x1b]0;owned\a\u009b2J \u202etxt`+"\r\n", string(text))

	out, _, err := d.Run(nil, "mender-app", "logs", "shop")
	require.NoError(t, err)
	require.Equal(t, "shop-web-1 | \x1b[32mgood\x1b[0m \x1b]0;owned\a\u009b2J \u202etxt\n", out)
	out, _, err = d.Run(nil, "mender-app", "logs", "shop", "--json")
	require.NoError(t, err)
	require.Contains(t, out, `"line":"\u001b[32mgood`)
}

// -f goes on until Ctrl-C, which is not an error. A reader that is gone ends it too.
func TestLogsFollow(t *testing.T) {
	d := installed(t)
	path := filepath.Join(d.Dir, "fake", "logs")
	line := func(text string) string {
		return `{"service":"web","instance":"shop-web-1","at":"2026-11-24T07:13:39.5Z","stream":"stdout","line":"` + text + "\"}\n"
	}
	require.NoError(t, os.WriteFile(path, []byte(line("one")), 0o644))
	cmd := d.Command("mender-app", "logs", "shop", "web", "-f", "-t")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "shop-web-1 2026-11-24T07:13:39.500Z | one", lines.Text())
	require.NoError(t, os.WriteFile(path, []byte(line("one")+line("two")), 0o644))
	require.True(t, lines.Scan())
	require.Equal(t, "shop-web-1 2026-11-24T07:13:39.500Z | two", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait())
	calls, err := os.ReadFile(filepath.Join(d.Dir, "fake", "calls"))
	require.NoError(t, err)
	require.Contains(t, string(calls), "LOGS shop web\n")

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat(line("much"), 5000)), 0o644))
	cmd = d.Command("mender-app", "logs", "shop", "-f")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err = cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, cmd.Wait(), stderr.String())
}
