package main

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

func TestLayOut(t *testing.T) {
	rows := [][]string{
		{"ENDED", "ARTIFACT", "STATUS", "ERROR"},
		{"2026-01-02 03:04:05", "shop-2026.1-candidate-17", "rolled-back", "service web is unhealthy: its check failed 3 times"},
		{"2026-01-02 03:04:05", "shop-1", "installed", "-"},
	}
	require.Equal(t, strings.Join([]string{
		"ENDED                ARTIFACT                  STATUS       ERROR",
		"2026-01-02 03:04:05  shop-2026.1-candidate-17  rolled-back  service web is unhealthy: its check failed 3 times",
		"2026-01-02 03:04:05  shop-1                    installed    -",
		"",
	}, "\n"), layOut(rows, 0))
	require.Equal(t, layOut(rows, 0), layOut(rows, 110), "it fits")
	require.Equal(t, strings.Join([]string{
		"ENDED                ARTIFACT              STATUS       ERROR",
		"2026-01-02 03:04:05  shop-2026.1-          rolled-back  service web is",
		"                     candidate-17                       unhealthy: its check",
		"                                                        failed 3 times",
		"2026-01-02 03:04:05  shop-1                installed    -",
		"",
	}, "\n"), layOut(rows, 76))
	require.Equal(t, layOut(rows, 0), layOut(rows, 20), "no room for columns")

	// Whatever the width, lines fit and no character is lost.
	letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
	for limit := 4*minColumn + 3*columnGap; limit < 130; limit++ {
		got := layOut(rows[1:2], limit)
		for line := range strings.Lines(got) {
			require.LessOrEqual(t, utf8.RuneCountInString(line)-1, limit)
		}
		require.Len(t, letters(got), len(letters(layOut(rows[1:2], 0))))
	}
	require.Equal(t, []string{"größte", "Länge"}, wrap("größte Länge", 8))
	require.Equal(t, []string{"sha256:", "01234567", "89"}, wrap("sha256:0123456789", 8))
}

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
