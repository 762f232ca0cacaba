package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// runsFrom lists the processes that run with a directory as their working directory, or
// below it.
func runsFrom(dir string) (list []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, dir+"/") {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			list = append(list, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return list
}

// slowStart has the client start a program that takes a moment before it becomes app: on a
// slow machine that is what a process does before its first own instruction.
func slowStart(t *testing.T, d *devicetest.Device) (begun string) {
	t.Helper()
	begun = filepath.Join(d.Dir, "begun")
	launcher := filepath.Join(d.Dir, "launcher")
	app := d.Command("app").Path
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	text := fmt.Sprintf("#!/bin/sh\ncase $1 in Download*) echo >%s; %s 0.5;; esac\nexec %s \"$@\"\n", begun, sleep, app)
	require.NoError(t, os.WriteFile(launcher, []byte(text), 0o755))
	conf := filepath.Join(d.Dir, "app.conf")
	settings, err := os.ReadFile(conf)
	require.NoError(t, err)
	settings = []byte(strings.Replace(string(settings), app, launcher, 1))
	require.NoError(t, os.WriteFile(conf, settings, 0o644))
	return begun
}

// TestClientDiesAtStart: a client that is killed before the module runs leaves no process
// and no lock.
func TestClientDiesAtStart(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	t.Parallel()
	t.Run("mender-app", func(t *testing.T) {
		d := newDevice(t)
		mustRun(t, d, "install", "--commit", "v1.mender")
		begun := slowStart(t, d)
		cmd := d.Command("mender-app", "install", "v2.mender")
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, 20*time.Second, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		nothingWaits(t, d)
	})
	t.Run("another client", func(t *testing.T) {
		d := newDevice(t)
		mustRun(t, d, "install", "--commit", "v1.mender")
		tree := filepath.Join(d.Dir, "tree")
		require.NoError(t, devicetest.WriteTree(tree, filepath.Join(d.Dir, "v2.mender")))
		require.NoError(t, unix.Mkfifo(filepath.Join(tree, "stream-next"), 0o600))
		// The shell that stands for the client exits at once.
		sleep, err := exec.LookPath("sleep")
		require.NoError(t, err)
		cmd := d.Command("sh", "-c", fmt.Sprintf("(cd %s; %s 0.5; exec %s DownloadWithFileSizes %s) >/dev/null 2>%s/said & exit", tree, sleep, d.Command("app").Path, tree, d.Dir))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		require.NoError(t, cmd.Run())
		require.Eventually(t, func() bool {
			said, _ := os.ReadFile(filepath.Join(d.Dir, "said"))
			return strings.Contains(string(said), "error: stopped because the client that called it has exited")
		}, 20*time.Second, 10*time.Millisecond)
		nothingWaits(t, d)
	})
}

// nothingWaits checks that no process of the device is left and that the next call has the
// lock.
func nothingWaits(t *testing.T, d *devicetest.Device) {
	t.Helper()
	require.Eventually(t, func() bool { return len(runsFrom(d.Dir)) == 0 }, 20*time.Second, 10*time.Millisecond, "%v", runsFrom(d.Dir))
	mustRun(t, d, "resume")
	mustRun(t, d, "stop", "shop")
	mustRun(t, d, "start", "shop")
	require.Equal(t, "one", d.Running("shop"))
}
