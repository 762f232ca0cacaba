package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/clip"
)

// TestNothingHostileIsPrinted: what services, sub-modules and users say contains no command for
// a terminal and no character that changes how it is read, in any output.
func TestNothingHostileIsPrinted(t *testing.T) {
	const escaped = `\u001b]0;owned\u0007\u009b2J\u202etxt\u2028\u2029\u200b\u007f`
	d := newDevice(t)
	write := func(file, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "fake", file), []byte(strings.ReplaceAll(text, "EVIL", escaped)), 0o644))
	}
	mustRun(t, d, "install", "--commit", "v1.mender")
	write("services", `[{"service":"webEVIL","instance":"shop-EVIL","health":"unhealthy","restarts":3,"failure":"EVIL","failed":"2026-11-24T06:59:59Z","said":"bye EVIL"}]`)
	write("logs", `{"service":"webEVIL","instance":"shop-EVIL","stream":"stdout","line":"EVIL"}`+"\n")
	said := map[string]bool{}
	for _, args := range [][]string{
		{"status"}, {"status", "shop"}, {"status", "--json"}, {"list"}, {"list", "--json"}, {"show", "shop"}, {"show", "shop", "--json"},
		{"health"}, {"health", "--json"}, {"history", "shop"}, {"history", "shop", "--json"}, {"history", "shop", "1", "--json"},
		{"events"}, {"events", "--json"}, {"metrics"}, {"logs", "shop", "--json"}, {"logs", "shop", "--deployment", "1", "--json"},
		{"status", "\u202e\x1b[2J"}, {"status", "\u202e\x1b[2J", "--json"}, {"inventory"}, {"verify", "--json"}, {"doctor", "--json"},
	} {
		stdout, stderr, _ := d.Run(nil, "mender-app", args...)
		text := stdout + stderr
		require.NotEmpty(t, text, args)
		for _, r := range text {
			require.False(t, clip.Hostile(r), "%v prints %q: %q", args, r, text)
		}
		said[strings.Join(args, " ")] = strings.Contains(text, `u202etxt`)
	}
	for _, command := range []string{"status", "status --json", "metrics", "logs shop --json"} {
		require.True(t, said[command], "%s does not say it", command)
	}
}
