package main

import (
	"bytes"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// Ctrl-C in an installation ends it cleanly, wherever it is: the previous release
// runs, temporary files are gone, and the last line says what happened.
func TestInterruptedInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	random := make([]byte, 300_000) // more than a pipe holds
	for i := range random {
		random[i] = byte('a' + rand.IntN(26))
	}
	for name, c := range map[string]struct {
		behave string // what the sub-module does
		piped  bool   // the artifact comes through a pipe that stays open
		part   int    // how much of it comes: none, or its n-th part
		signal os.Signal
		code   int
		said   string
	}{
		"in the download":     {behave: "LOAD hang", signal: os.Interrupt, code: 130, said: "interrupted: nothing was changed; installed is shop-1"},
		"in the installation": {behave: "ROLLOUT hang", signal: os.Interrupt, code: 130, said: "interrupted: the update was rolled back; installed is shop-1"},
		"in the header":       {piped: true, signal: os.Interrupt, code: 130, said: "interrupted: nothing was changed"},
		"the pipe is silent":  {piped: true, part: 2, signal: os.Interrupt, code: 130, said: "interrupted: nothing was changed; installed is shop-1"},
		"by TERM":             {behave: "ROLLOUT hang", signal: syscall.SIGTERM, code: 124, said: "stopped by a signal (terminated): the update was rolled back; installed is shop-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := devicetest.NewDevice(t.TempDir())
			require.NoError(t, err)
			for i, compose := range []string{"one", "two"} {
				file := []string{"v1.mender", "v2.mender"}[i]
				a := devicetest.Artifact{Name: "shop-" + file[1:2], App: "shop", Compose: compose, Images: []string{"web:1=" + compose + string(random)}}
				require.NoError(t, a.Write(filepath.Join(d.Dir, file)))
			}
			_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
			require.NoError(t, err, stderr)
			before := files(t, d.Dir)
			require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "fake", "behave"), []byte(c.behave+"\n"), 0o644))
			require.NoError(t, os.Remove(filepath.Join(d.Dir, "fake", "calls")))

			cmd := d.Command("mender-app", "install", "v2.mender")
			file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			require.NoError(t, err)
			defer file.Close()
			cmd.Stderr = file
			out := func() string {
				text, err := os.ReadFile(file.Name())
				require.NoError(t, err)
				return string(text)
			}
			if c.piped {
				cmd.Args[2] = "-"
				whole, err := os.ReadFile(filepath.Join(d.Dir, "v2.mender"))
				require.NoError(t, err)
				in, err := cmd.StdinPipe()
				require.NoError(t, err)
				defer in.Close()
				require.NoError(t, cmd.Start())
				if c.part > 0 {
					_, err = io.Copy(in, bytes.NewReader(whole[:len(whole)/c.part]))
					require.NoError(t, err)
				}
				begun := func() bool { return strings.Contains(out(), "signature is not checked") }
				if c.part > 0 { // the module reads the payload
					begun = func() bool { return called(d, "LOAD ") }
				}
				require.Eventually(t, begun, 20*time.Second, 5*time.Millisecond)
			} else {
				require.NoError(t, cmd.Start())
				verb, _, _ := strings.Cut(c.behave, " ")
				require.Eventually(t, func() bool { return called(d, verb+" ") }, 20*time.Second, 5*time.Millisecond)
			}
			require.NoError(t, cmd.Process.Signal(c.signal))
			_ = cmd.Wait()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode(), out())
			lines := strings.Split(strings.TrimSpace(out()), "\n")
			require.Equal(t, "error: "+c.said, lines[len(lines)-1])

			require.Equal(t, "one", d.Running("shop"))
			require.Equal(t, before, files(t, d.Dir), "temporary files, or an image")
			agree(t, d, name, false)
			require.NoError(t, os.Remove(filepath.Join(d.Dir, "fake", "behave")))
			_, stderr, err = d.Run(nil, "mender-app", "install", "--commit", "v2.mender")
			require.NoError(t, err, stderr)
			require.Equal(t, "two", d.Running("shop"))
		})
	}
}

// called reports whether the sub-module was called so.
func called(d *devicetest.Device, call string) bool {
	calls, _ := os.ReadFile(filepath.Join(d.Dir, "fake", "calls"))
	return strings.Contains(string(calls), call)
}

// files are the names of all files of a device but those that an interrupted
// deployment leaves: its record in the history, what a load may have left in the
// engine, and the notes of the sub-module of these tests.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir)
		if err == nil && name != "/store/.mender-app/suspects.json" && !strings.HasPrefix(name, "/store/.mender-app/history/") && (!strings.HasPrefix(name, "/fake/") || strings.HasPrefix(name, "/fake/images/")) {
			names = append(names, name)
		}
		return err
	}))
	return names
}
