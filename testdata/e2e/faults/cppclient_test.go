package faults

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A kill of the C++ client and its call, in each state, and each command that goes on
// from there: afterwards one release runs, and the client believes in it.
func TestCppClientKilled(t *testing.T) {
	d := e2e.Device(t)
	d.UseCppMender(t)
	files := map[string]string{}
	for _, v := range []string{"1", "2"} {
		files[v] = e2e.Release(t, d, v, "")
	}
	killedInEachState(t, d, "app", files, e2e.Provides)
}

// killedInEachState kills the C++ client and its call of the module while the device
// goes from release 1 to 2.
func killedInEachState(t *testing.T, d *bed.Device, module string, files map[string]string, provides func(version string) map[string]string) {
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", files["1"])
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	first := d.MustState(t)

	for _, c := range []struct {
		before, killed []string // commands: before, and the one that is killed
		point          string
		then           []string
		ends           string
	}{
		{nil, []string{"install"}, "DownloadWithFileSizes/called.LOAD:1", []string{"install", "commit"}, "2"},
		{nil, []string{"install"}, "ArtifactInstall/call.ROLLOUT:1", []string{"resume"}, "1"},
		{nil, []string{"install"}, "ArtifactInstall/called.ROLLOUT:1", []string{"rollback"}, "1"},
		{nil, []string{"install"}, "ArtifactInstall/called.ROLLOUT:1", []string{"resume"}, "1"},
		{[]string{"install"}, []string{"commit"}, "ArtifactCommit/wrote.app.json:1", []string{"resume"}, "1"},
		{[]string{"install"}, []string{"commit"}, "ArtifactCommit/wrote.app.json:1", []string{"commit"}, "1"},
		{[]string{"install"}, []string{"rollback"}, "ArtifactRollback/call.ROLLBACK:1", []string{"resume"}, "1"},
		{[]string{"install"}, []string{"rollback"}, "Cleanup/*:1", []string{"resume"}, "1"},
		{[]string{"install"}, []string{"commit"}, "Cleanup/*:1", []string{"resume"}, "2"},
	} {
		name := strings.Join(append(append(append([]string{}, c.before...), c.killed...), c.point), " ") + ", then " + c.then[0]
		ok := t.Run(name, func(t *testing.T) {
			for _, command := range c.before {
				e2e.Mender(t, d, withFile(command, files["2"])...)
			}
			args := append([]string{"MENDER_APP_FAULT=" + module + " " + c.point + ":kill-both", "mender-update"}, withFile(c.killed[0], files["2"])...)
			r, err := d.Run("env", args...)
			require.NoError(t, err)
			require.NotZero(t, r.Code, "not killed\n%s", r.Output())
			for _, command := range c.then {
				_, err := d.Mender(withFile(command, files["2"])...) // its exit status is not all that counts
				require.NoError(t, err)
			}
			e2e.Says(t, w, "web "+c.ends)
			d.MustProvide(t, provides(c.ends))
			require.NotContains(t, d.MustRun(t, "mender-app", "list"), "waits")
			if c.ends != "1" {
				e2e.Mender(t, d, "install", files["1"])
				e2e.Mender(t, d, "commit")
				e2e.Says(t, w, "web 1")
			}
			now := d.MustState(t)
			require.Equal(t, first.Service("shop", "stock"), now.Service("shop", "stock"), "the unchanged service was touched")
			d.MustRun(t, "mender-app", "verify")
		})
		require.True(t, ok, "the next case begins where this one ends")
	}
}

// withFile adds the artifact to the command that needs one.
func withFile(command, file string) []string {
	if command == "install" {
		return []string{command, file}
	}
	return []string{command}
}
