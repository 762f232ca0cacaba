package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// killSubmodule puts a program in the place of the sub-module that kills the
// next call of a verb: at one of its fault points, or before it does anything
// (point ""), and then is the sub-module.
func (d *device) killSubmodule(verb, point string) {
	d.t.Helper()
	real := filepath.Join(d.dir, "real/k8s")
	if _, err := os.Stat(real); err != nil {
		require.NoError(d.t, os.MkdirAll(filepath.Dir(real), 0o755))
		require.NoError(d.t, os.Rename(d.submodule(), real))
		require.NoError(d.t, os.WriteFile(d.submodule(), fmt.Appendf(nil, `#!/bin/sh
if [ -e '%[1]s/kill-'"$1" ]; then
	point=$(cat '%[1]s/kill-'"$1")
	mv '%[1]s/kill-'"$1" '%[1]s/killed'
	[ -n "$point" ] || kill -9 $$
	export MENDER_APP_FAULT="$point:kill"
fi
exec '%[2]s' "$@"
`, d.dir, real), 0o755))
	}
	require.NoError(d.t, os.WriteFile(filepath.Join(d.dir, "kill-"+verb), []byte(point), 0o644))
	_ = os.Remove(filepath.Join(d.dir, "killed"))
}

// TestSubmoduleKilled kills the sub-module with SIGKILL in every verb that an
// installation calls. Whatever the client is told, the device ends in one whole
// release, the one that the client believes in; at most after `resume`, which
// is what the next boot does.
func TestSubmoduleKilled(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	d.installs(d.artifact("1", manifests("1"), "--image="+d.image("1")))
	d.at("1")
	second := d.artifact("2", manifests("2"), "--image="+d.image("2"))
	third := d.artifact("3", manifests("3"), "--image="+d.image("3", "UNREADY=1"))
	for _, c := range []struct{ verb, point string }{
		{"PROTOCOL", ""}, {"REQS", ""},
		{"LOAD", ""}, {"LOAD", "load.received:1"}, {"SYNC", ""},
		{"ROLLOUT", ""}, {"ROLLOUT", "rollout.apply:1"}, {"ROLLOUT", "rollout.healthy:1"}, {"ROLLOUT", "remove.object:1"}, {"ROLLOUT", "rollout.narrowed:1"},
	} {
		t.Run(c.verb+"/"+c.point, func(t *testing.T) {
			d.killSubmodule(c.verb, c.point)
			out, err := d.mender("install", second)
			require.FileExists(t, filepath.Join(d.dir, "killed"), out)
			if err == nil { // it did not matter
				d.must("rollback")
			}
			d.at("1")
		})
	}
	for _, point := range []string{"", "rollout.apply:1"} {
		t.Run("ROLLBACK/"+point, func(t *testing.T) {
			d.killSubmodule("ROLLBACK", point)
			_, err := d.mender("install", third)
			require.Error(t, err)
			require.FileExists(t, filepath.Join(d.dir, "killed"))
			d.byHand(filepath.Join(d.dir, "bin/mender-app"), "resume")
			require.Equal(t, "1", d.says())
			// The client may have been told that the rollback failed: the next
			// installation puts that right.
			d.installs(d.artifact("1", manifests("1"), "--image="+d.image("1")))
			d.at("1")
		})
	}
	for _, verb := range []string{"HEALTHY", "DELETE"} {
		t.Run(verb, func(t *testing.T) {
			d.must("install", second)
			d.killSubmodule(verb, "")
			if _, err := d.mender("commit"); err != nil {
				d.byHand(filepath.Join(d.dir, "bin/mender-app"), "resume")
			}
			version := d.says()
			require.Contains(t, []string{"1", "2"}, version)
			if version == "2" {
				d.at("2")
				d.installs(d.artifact("1", manifests("1"), "--image="+d.image("1")))
			}
			d.at("1")
		})
	}
}
