package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable/faults"
)

// faultCase is a command in the middle of which a process is killed.
type faultCase struct {
	name     string
	killed   string   // the process, as faults.Env names it
	commands []string // of mender-app, run before; the last one is the killed one
	sick     bool     // the release that is installed never gets healthy
	// told: a rollback that was killed under a client that lives is a failed
	// one to it; it calls the device inconsistent, and ArtifactFailure repairs.
	told bool
}

var faultCases = []faultCase{
	{"Download", "app DownloadWithFileSizes", []string{"install"}, false, false},
	{"ArtifactInstall", "app ArtifactInstall", []string{"install"}, false, false},
	{"ArtifactInstall of a bad release", "app ArtifactInstall", []string{"install"}, true, false},
	{"ArtifactCommit", "app ArtifactCommit", []string{"install", "commit"}, false, false},
	{"Cleanup after commit", "app Cleanup", []string{"install", "commit"}, false, false},
	{"ArtifactRollback", "app ArtifactRollback", []string{"install"}, true, true},
	{"ArtifactRollback by hand", "app ArtifactRollback", []string{"install", "rollback"}, false, true},
	{"Cleanup after rollback", "app Cleanup", []string{"install"}, true, false},
	{"mender-app install", "mender-app install", []string{"install"}, false, false},
	{"mender-app commit", "mender-app commit", []string{"install", "commit"}, false, false},
	{"mender-app rollback", "mender-app rollback", []string{"install", "rollback"}, false, false},
	{"mender-app abort", "mender-app abort", []string{"install", "abort"}, false, false},
	{"ArtifactRollback of an abort", "app ArtifactRollback", []string{"install", "abort"}, false, true},
}

// TestKilledProcesses kills real processes at each durable step and each call
// of the sub-module. Whatever was killed, `mender-app resume` leads to the old
// release or the new one, the one that the client's record names, and the next
// artifact gets in.
func TestKilledProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes; left out of -short")
	}
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, os.Mkdir(ready, 0o755))
	d, err := devicetest.NewDevice(ready)
	require.NoError(t, err)
	for i, compose := range []string{"one", "two", "three sick", "four"} {
		a := devicetest.Artifact{Name: fmt.Sprint("shop-", i+1), App: "shop", Compose: compose, Images: []string{"web:1=web-" + compose, "side:1=side"}}
		require.NoError(t, a.Write(filepath.Join(ready, fmt.Sprintf("v%d.mender", i+1))))
	}
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)

	draw := rand.New(rand.NewPCG(seed(t), 0))
	total := 0
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			// All of them take minutes: that is for `make faults`.
			step, n := 1, 1
			if os.Getenv("MENDER_APP_FAULTS") == "" {
				step = 6
				n += draw.IntN(step)
			}
			first, kills := n, 0
			for ; killAt(t, ready, c, n); n += step {
				kills++
			}
			t.Logf("killed at %d points from %d in steps of %d", kills, first, step)
			total += kills
		})
	}
	t.Logf("figures: real processes of app and mender-app: %d kills", total)
}

// killAt kills at the n-th point; false means that there are fewer.
func killAt(t *testing.T, ready string, c faultCase, n int) bool {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(ready)))
	d, err := devicetest.NewDevice(dir)
	require.NoError(t, err)
	where := fmt.Sprintf("%s killed at point %d", c.killed, n)
	file := "v2.mender"
	if c.sick {
		file = "v3.mender"
	}
	trace := filepath.Join(dir, "trace")
	var said string
	for i, command := range c.commands {
		args := []string{command}
		if command == "install" {
			args = append(args, file)
		}
		var env []string
		if i == len(c.commands)-1 {
			env = []string{fmt.Sprintf("%s=%s/*:%d:kill", faults.Env, c.killed, n), faults.TraceEnv + "=" + trace}
		}
		var stderr string
		_, stderr, err = d.Run(env, "mender-app", args...)
		said += stderr
	}
	hit := strings.Contains(said, "ended by a signal")
	if strings.HasPrefix(c.killed, "mender-app") {
		hit = err != nil && strings.Contains(err.Error(), "killed")
	}
	if !hit {
		return false
	}
	stdout, stderr, err := d.Run(nil, "mender-app", "resume")
	require.NoError(t, err, "%s: resume: %s%s", where, stdout, stderr)
	if _, _, err := d.Run(nil, "mender-app", "rollback"); err == nil {
		where += ", rolled back" // it had been installed, and waited
	}
	agree(t, d, where, c.told)

	_, stderr, err = d.Run(nil, "mender-app", "install", "--commit", "v4.mender")
	require.NoError(t, err, "%s: next installation: %s", where, stderr)
	require.Equal(t, "four", d.Running("shop"), where)
	agree(t, d, where, false)
	images, err := os.ReadDir(filepath.Join(dir, "fake", "images"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(images), 3, "%s: images left over", where)
	return true
}

// agree asserts that what runs, what the store says and what the client says
// are the same release.
func agree(t *testing.T, d *devicetest.Device, where string, told bool) {
	t.Helper()
	names := map[string]string{"one": "shop-1", "two": "shop-2", "four": "shop-4"}
	running := names[d.Running("shop")]
	require.NotEmpty(t, running, "%s: %q runs", where, d.Running("shop"))
	s := store.At(filepath.Join(d.Dir, "store"))
	a, err := s.App("shop")
	require.NoError(t, err, where)
	require.Nil(t, a.Deployment, where)
	r, err := a.Release(a.Current)
	require.NoError(t, err, where)
	require.Equal(t, running, r.ArtifactName, where)
	require.Equal(t, a.Current, a.Pointed(), where)
	var record struct {
		Installed struct {
			ArtifactName string `json:"artifact_name"`
		} `json:"installed"`
		Open any `json:"open"`
	}
	data, err := os.ReadFile(s.Meta("client/client.json"))
	require.NoError(t, err, where)
	require.NoError(t, json.Unmarshal(data, &record), where)
	if !told || !strings.HasSuffix(record.Installed.ArtifactName, "_INCONSISTENT") {
		require.Equal(t, running, record.Installed.ArtifactName, where)
	}
	require.Nil(t, record.Open, where)
	left, err := filepath.Glob(filepath.Join(d.Dir, "store", "shop", "releases", "*"))
	require.NoError(t, err)
	slices.Sort(left)
	require.Len(t, left, 1+len(a.Kept), "%s: releases left over: %v", where, left)
}
