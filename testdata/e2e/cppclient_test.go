package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// The Mender client in C++ does what the client in Go does: the main job, and what
// mender-app answers to the calls that only this client makes.
func TestCppClientUpdates(t *testing.T) {
	d := device(t)
	d.UseCppMender(t)
	installUpdateFailAndRollBack(t, d)

	// A delta of another release is refused before any call of the update module.
	before := unchanging(d.MustState(t))
	said := menderFails(t, d, "install", generate(t, d, "shop", "shop-5", "5", compose("5"), "--deep-delta", "--depends", "data-partition.shop.version:1",
		delta(t, web(t, "1", ""), web(t, "5", "")), delta(t, stock(t), stock(t))))
	require.Contains(t, said, "data-partition.shop.version")
	require.Equal(t, before, unchanging(d.MustState(t)))

	// What an operator changes stays over an update and its rollback.
	override := d.Share("override.yaml")
	require.NoError(t, os.WriteFile(override, []byte("services: {web: {labels: {limits: small}}}\n"), 0o644))
	d.MustRun(t, "mender-app", "overrides", "set", "shop", override)
	limits := func() {
		t.Helper()
		require.Equal(t, "small\n", d.MustRun(t, "docker", "inspect", "--format", `{{index .Config.Labels "limits"}}`, "shop-web-1"))
	}
	limits()
	mender(t, d, "install", release(t, d, "4", ""))
	limits()
	mender(t, d, "rollback")
	limits()
	d.MustRun(t, "mender-app", "overrides", "clear", "shop")

	// The client refuses a second installation before the commit of the first, and
	// a rollback after it.
	r, err := d.Mender("install", release(t, d, "6", ""))
	require.NoError(t, err)
	require.Contains(t, r.Output(), "until its commit, a rollback or the next installation goes back")
	menderFails(t, d, "install", release(t, d, "7", ""))
	d.MustProvide(t, provides("2"))
	mender(t, d, "commit")
	d.MustProvide(t, provides("6"))
	menderFails(t, d, "rollback")
	d.MustProvide(t, provides("6"))
	d.MustRun(t, "mender-app", "verify", "shop")

	// The caller of install is told that the machine must restart.
	r, err = d.Mender("install", "--reboot-exit-code", release(t, d, "8", "", "--reboot"))
	require.NoError(t, err)
	require.Equal(t, 4, r.Code, r.Output())
	mender(t, d, "commit")
	d.MustProvide(t, provides("8"))

	// The module must be a file in the directory of modules.
	d.MustRun(t, "bash", "-ec", `cd /usr/share/mender/modules/v3; mv app /usr/lib/app; ln -s /usr/lib/app app`)
	require.Contains(t, menderFails(t, d, "install", release(t, d, "7", "")), "Module path is outside Update Modules directory")
}

// A kill of the C++ client and its call, in each state, and each command that goes on
// from there: afterwards one release runs, and the client believes in it.
func TestCppClientKilled(t *testing.T) {
	d := device(t)
	d.UseCppMender(t)
	files := map[string]string{}
	for _, v := range []string{"1", "2"} {
		files[v] = release(t, d, v, "")
	}
	killedInEachState(t, d, "app", files, provides)
}

// killedInEachState kills the C++ client and its call of the module while the device
// goes from release 1 to 2.
func killedInEachState(t *testing.T, d *bed.Device, module string, files map[string]string, provides func(version string) map[string]string) {
	w := watch(t, d)
	mender(t, d, "install", files["1"])
	mender(t, d, "commit")
	says(t, w, "web 1")
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
				mender(t, d, withFile(command, files["2"])...)
			}
			args := append([]string{"MENDER_APP_FAULT=" + module + " " + c.point + ":kill-both", "mender-update"}, withFile(c.killed[0], files["2"])...)
			r, err := d.Run("env", args...)
			require.NoError(t, err)
			require.NotZero(t, r.Code, "not killed\n%s", r.Output())
			for _, command := range c.then {
				_, err := d.Mender(withFile(command, files["2"])...) // its exit status is not all that counts
				require.NoError(t, err)
			}
			says(t, w, "web "+c.ends)
			d.MustProvide(t, provides(c.ends))
			require.NotContains(t, d.MustRun(t, "mender-app", "list"), "waits")
			if c.ends != "1" {
				mender(t, d, "install", files["1"])
				mender(t, d, "commit")
				says(t, w, "web 1")
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
