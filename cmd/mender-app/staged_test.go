package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/store/durable/faults"
)

// TestKilledWhileStaging kills the process at each durable step of staging, from a file
// and from a URL, and of removing. What is listed afterwards is whole and can be
// installed, and the next command of the same kind leaves nothing behind.
func TestKilledWhileStaging(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of both processors")
	}
	kills := 0
	for _, c := range []struct {
		name  string
		args  []string
		after int // artifacts that are staged when the command was repeated
	}{{"file", []string{"stage", "v2.mender"}, 2}, {"url", []string{"stage", "URL"}, 2}, {"unstage", []string{"unstage", "shop-1"}, 0}} {
		t.Run(c.name, func(t *testing.T) {
			d := newDevice(t)
			server := serveReleases(t, d.Dir)
			args := slices.Clone(c.args)
			if args[1] == "URL" {
				args[1] = server.URL + "/v2.mender"
			}
			for n := 1; ; n++ {
				mustRun(t, d, "stage", "v1.mender")
				_, _, err := d.Run(append(server.env, fmt.Sprintf("%s=*:%d:kill", faults.Env, n)), "mender-app", args...)
				if err == nil || !strings.Contains(err.Error(), "killed") {
					break
				}
				kills++
				where := fmt.Sprintf("killed at point %d", n)
				list := mustRun(t, d, "staged", "--json")
				require.NotContains(t, list, "problem", where)
				if strings.Contains(list, "shop-2") {
					mustRun(t, d, "check", "--staged", "shop", "shop-2")
				}
				if c.after > 0 {
					require.Contains(t, list, "shop-1", where)
				}
				_, stderr, err := d.Run(server.env, "mender-app", args...)
				if !strings.Contains(stderr, "is not staged") {
					require.NoError(t, err, "%s: %s", where, stderr)
				}
				left, err := os.ReadDir(filepath.Join(d.Dir, "store", ".mender-app", "staged"))
				require.NoError(t, err)
				require.Len(t, left, 1+2*c.after, "%s: %v", where, left)
				if c.after > 0 {
					mustRun(t, d, "unstage", "shop-2")
				}
			}
		})
	}
	t.Logf("figures: mender-app stage and unstage: %d kills", kills)
}

// While another call uses the store, nothing is staged or removed.
func TestStagingWaitsForTheStore(t *testing.T) {
	d := newDevice(t)
	mustRun(t, d, "stage", "v1.mender")
	release, err := durable.Lock(store.At(filepath.Join(d.Dir, "store")).Meta("lock"), "a test")
	require.NoError(t, err)
	for _, args := range [][]string{{"stage", "v2.mender"}, {"unstage", "shop-1"}} {
		_, stderr, err := d.Run(nil, "mender-app", args...)
		require.ErrorContains(t, err, "exit status 75")
		require.Contains(t, stderr, "another call is using the store (process ")
	}
	require.Contains(t, mustRun(t, d, "staged"), "shop-1", "a list needs no lock")
	release()
	mustRun(t, d, "unstage", "shop-1")
}

// The state script in examples/osupdate lets an operating system in whose engine the
// applications run on, and no other.
func TestStateScriptForOSUpdates(t *testing.T) {
	d := newDevice(t)
	text, err := os.ReadFile("../../examples/osupdate/ArtifactInstall_Enter_10_engine")
	require.NoError(t, err)
	ask := func(version string) (string, error) {
		require.Contains(t, string(text), "@ENGINE_VERSION@")
		script := strings.ReplaceAll(string(text), "@ENGINE_VERSION@", version)
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "script"), []byte(script), 0o755))
		_, stderr, err := d.Run(nil, filepath.Join(d.Dir, "script"))
		return stderr, err
	}
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web-one"}, Policy: "[orchestrator]\nmaximum = '28.5'"}
	require.NoError(t, a.Write(filepath.Join(d.Dir, "v1.mender")))
	mustRun(t, d, "install", "--commit", "v1.mender")
	_, err = ask("28.5.2")
	require.NoError(t, err)
	said, err := ask("29.0")
	require.ErrorContains(t, err, "exit status 1")
	require.Contains(t, said, "it needs 28.5 or earlier (orchestrator.maximum)")
}
