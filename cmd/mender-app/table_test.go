package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// On a terminal, tables fit; in a pipe they are whole.
func TestTablesFitTheTerminal(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	a := devicetest.Artifact{Name: "shop-2026.01.02-release-candidate-17-for-the-north", App: "shop", Compose: "one",
		Images: []string{"registry.example/shop/a-service-with-a-long-name/web:1=web"}}
	require.NoError(t, a.Write(d.Dir+"/v1.mender"))
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)
	for _, args := range [][]string{{"list"}, {"status"}, {"show", "shop"}, {"releases", "shop"}, {"history", "shop"}} {
		whole, _, err := d.Run(nil, "mender-app", args...)
		require.NoError(t, err)
		require.Contains(t, whole, a.Name)

		screen, terminal := devicetest.OpenTerminal(t, 80)
		cmd := d.Command("mender-app", args...)
		cmd.Stdout = terminal
		require.NoError(t, cmd.Run())
		require.NoError(t, terminal.Close())
		text, _ := io.ReadAll(screen) // ends with EIO
		shown := strings.ReplaceAll(string(text), "\r\n", "\n")
		require.NotEmpty(t, shown)
		for line := range strings.Lines(shown) {
			require.LessOrEqual(t, len(line)-1, 80, line)
		}
		require.Greater(t, strings.Count(shown, "\n"), strings.Count(whole, "\n"), args)
	}
}
