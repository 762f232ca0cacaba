package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/store/durable/faults"
)

// TestReconcileKilled kills reconcile, or the update module that it started, at each durable
// step, of which this takes every fifth: while it installs a staged artifact, and while it goes back because one was
// withdrawn. The next call does the rest.
func TestReconcileKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute of both processors")
	}
	d := newDevice(t)
	for _, v := range []string{"1", "2"} {
		a := devicetest.Artifact{
			Name: "shop-" + v, App: "shop", Compose: v, Images: []string{"web:1=web-" + v},
			Policy: "managed = true\nupgrades = {automatic = true}",
		}
		require.NoError(t, a.Write(filepath.Join(d.Dir, "v"+v+".mender")))
	}
	mustRun(t, d, "install", "--commit", "v1.mender")
	mustRun(t, d, "stage", "v1.mender")
	runs := func() string {
		text, err := os.ReadFile(filepath.Join(d.Dir, "fake", "running", "shop"))
		require.NoError(t, err)
		return strings.SplitN(string(text), "\n", 2)[0]
	}
	kills := 0
	for n, done := 1, 0; done < 2; n += 5 { // a process that dies costs a delay of 5 s
		done = 0
		for _, want := range []string{"2", "1"} {
			if want == "2" {
				mustRun(t, d, "stage", "v2.mender")
			} else {
				mustRun(t, d, "unstage", "shop-2")
			}
			_, stderr, err := d.Run([]string{fmt.Sprintf("%s=*:%d:kill", faults.Env, n)}, "mender-app", "reconcile", "--for", "0s")
			where := fmt.Sprintf("killed at point %d on the way to %s", n, want)
			if err == nil {
				done++
			} else {
				kills++
				_, stderr, err = d.Run(nil, "mender-app", "reconcile", "--for", "10s")
				require.NoError(t, err, "%s: %s", where, stderr)
			}
			require.Equal(t, want, runs(), "%s: %s", where, stderr)
			require.Regexp(t, `(?m)^shop .* installed$`, mustRun(t, d, "list"), where)
			require.Contains(t, mustRun(t, d, "queue"), "nothing waits", where)
		}
	}
	t.Logf("figures: mender-app reconcile: %d kills", kills)
}

// TestDisableKilled kills reconcile at each third durable step while it disables an
// application, and while it enables it again. The next call does the rest.
func TestDisableKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	d := newDevice(t)
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web-1"}, Policy: "managed = true"}
	require.NoError(t, a.Write(filepath.Join(d.Dir, "v1.mender")))
	mustRun(t, d, "install", "--commit", "v1.mender")
	require.NoError(t, os.MkdirAll(filepath.Join(d.Dir, "values.d"), 0o755))
	config, err := os.OpenFile(filepath.Join(d.Dir, "app.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = fmt.Fprintf(config, "values_dir = %q\n", filepath.Join(d.Dir, "values.d"))
	require.NoError(t, errors.Join(err, config.Close()))
	kills := 0
	for n, done := 1, 0; done < 2; n += 3 {
		done = 0
		for _, on := range []bool{false, true} {
			require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "values.d", "10.env"), fmt.Appendf(nil, "enabled=%v\n", on), 0o644))
			_, stderr, err := d.Run([]string{fmt.Sprintf("%s=*:%d:kill", faults.Env, n)}, "mender-app", "reconcile", "--for", "0s")
			if err == nil {
				done++
			} else {
				kills++
				_, stderr, err = d.Run(nil, "mender-app", "reconcile", "--for", "10s")
				require.NoError(t, err, stderr)
			}
			where := fmt.Sprintf("killed at point %d on the way to %v: %s", n, on, stderr)
			require.Equal(t, on, d.Running("shop") == "one", where)
			require.Equal(t, on, !strings.Contains(mustRun(t, d, "status", "shop"), "it is disabled"), where)
			require.Contains(t, mustRun(t, d, "queue"), "nothing waits", where)
		}
	}
	t.Logf("figures: mender-app reconcile, disabled and enabled: %d kills", kills)
	require.Greater(t, kills, 4)
}
