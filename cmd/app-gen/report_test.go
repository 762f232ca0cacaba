package main

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// Reports of images with long names fit a terminal.
func TestColumnsFitTheTerminal(t *testing.T) {
	screen, terminal := devicetest.OpenTerminal(t, 80)
	c := newColumns(terminal, "IMAGE", "BASE", "LAYERS", "UNPACKED", "WHOLE", "SENT", "SAVED")
	c.row("registry.example.com/gateways/web:2026.11.3", "registry.example.com/gateways/web:2026.10.1", "5 omitted, 2 delta, 1 verbatim", "163.8 MB", "58.0 MB", "39.3 kB", "99.93 %")
	c.print()
	require.NoError(t, terminal.Close())
	text, _ := io.ReadAll(screen) // it ends with an error, because the terminal is closed
	lines := strings.Split(strings.TrimSpace(string(text)), "\r\n")
	require.Greater(t, len(lines), 2, "%s", text)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 80, "%s", text)
	}
	require.Contains(t, string(text), "99.93 %")
}
