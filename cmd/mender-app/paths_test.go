package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPathsOfOthers: whoever can change a path puts a pipe there, into which nobody writes.
// No command waits for it.
func TestPathsOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	d := newDevice(t)
	mustRun(t, d, "install", "--commit", "v1.mender")
	pipe := filepath.Join(d.Dir, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o666))
	conf := filepath.Join(d.Dir, "app.conf")
	settings, err := os.ReadFile(conf)
	require.NoError(t, err)
	withKey := append([]byte("artifact_verify_key = \""+pipe+"\"\n"), settings...)
	for _, args := range [][]string{
		{"install", pipe}, {"check", pipe}, {"stage", pipe}, {"restore", "--unsigned", pipe}, {"verify", "--repair", "--from", pipe, "shop"},
		{"check", "--key", pipe, "v1.mender"}, {"overrides", "set", "shop", pipe},
		{"serve", "--listen", "127.0.0.1:0", "--token-file", pipe},
		{"install", "v1.mender"},
	} {
		require.NoError(t, os.WriteFile(conf, settings, 0o644))
		if args[len(args)-1] == "v1.mender" {
			require.NoError(t, os.WriteFile(conf, withKey, 0o644))
		}
		cmd := d.Command("mender-app", args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		waits := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		require.Error(t, cmd.Wait(), "%v", args)
		require.True(t, waits.Stop(), "%v waits", args)
		require.Contains(t, out.String(), "is a pipe, not a file", "%v", args)
	}
}
