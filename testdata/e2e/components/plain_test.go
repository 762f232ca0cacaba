package components

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A release of a sub-module that overwrites its components comes back whole: after a
// failed update, after a rollback days later, and after a kill at every point of
// every call.
func TestPlainSubmodule(t *testing.T) {
	t.Parallel()
	bed.Require(t, "mender-artifact")
	if _, err := exec.LookPath("mender"); err != nil {
		t.Skip("the orders are those of the Go client: needs mender")
	}
	d := bed.StartWithoutEngine(t)
	require.NoError(t, os.WriteFile(d.Share("plain"), []byte(e2e.PlainSubmodule), 0o755))
	d.MustRun(t, "install", "-m755", d.Share("plain"), "/usr/share/mender/app-modules/v1/plain")

	content := map[string]map[string]string{
		"1": {"tool": "tool one", "data": "the same"},
		"2": {"tool": "tool two", "data": "the same"},
		"3": {"tool": "tool bad", "data": "the same"},
		"4": {"tool": "tool four", "data": "other data"},
	}
	files := map[string]string{}
	for version, c := range content {
		files[version] = e2e.PlainRelease(t, d, version, c)
	}
	// at asserts that a release is in place and runs.
	at := func(version, where string) {
		t.Helper()
		for name, want := range content[version] {
			for _, dir := range []string{"/data/plain/tool/", "/data/plain/tool.runs/"} {
				require.Equal(t, want, d.MustRun(t, "cat", dir+name), "%s: %s%s", where, dir, name)
			}
		}
		require.Contains(t, d.MustRun(t, "cat", "/data/mender-app/tool/app.json"), "tool-"+version, where)
	}
	e2e.Mender(t, d, "install", files["1"])
	e2e.Mender(t, d, "commit")
	at("1", "installed")
	e2e.Mender(t, d, "install", files["2"])
	at("2", "updated")
	e2e.Mender(t, d, "commit")
	require.Contains(t, d.MustRun(t, "mender-app", "show", "tool"), "python-package  tool sha256:", "the type that LIST says")
	d.MustRun(t, "mender-app", "verify", "tool")
	d.MustRun(t, "sh", "-c", "echo more >>/data/plain/tool/data")
	r, err := d.Run("mender-app", "verify", "tool")
	require.NoError(t, err)
	require.Equal(t, submodules.CodeContent, r.Code)
	require.Contains(t, r.Stdout, "data: it is sha256:")
	d.MustRun(t, "sh", "-c", "printf 'the same' >/data/plain/tool/data")

	e2e.MenderFails(t, d, "install", files["3"])
	at("2", "the failed release went back")
	wrong := e2e.PlainReleaseWith(t, d, "5", content["4"], func(h *bed.Handmade) {
		for i := range h.Images {
			if h.Images[i].Data != nil && string(h.Images[i].Data) == "other data" {
				h.Images[i].Data = []byte("forged data")
			}
		}
	})
	require.Contains(t, e2e.MenderFails(t, d, "install", wrong), "and should be sha256:")
	at("2", "a file that is not its sum is refused")
	e2e.Mender(t, d, "install", files["4"])
	at("4", "updated again")
	e2e.Mender(t, d, "rollback")
	at("2", "rolled back")
	d.MustRun(t, "mender-app", "rollback", "tool")
	at("1", "days later")
	d.MustRun(t, "mender-app", "rollback", "tool", "tool-2")
	at("2", "forth again")

	for _, state := range []string{"Download", "ArtifactInstall", "ArtifactRollback"} {
		kills := 0
		for ; ; kills++ {
			fault := fmt.Sprintf("app %s/*:%d:kill-both", state, kills+1)
			command := []string{"install", files["4"]}
			if state == "ArtifactRollback" {
				e2e.Mender(t, d, command...)
				command = []string{"rollback"}
			}
			r, err := d.Run("env", append([]string{"MENDER_APP_FAULT=" + fault, "mender", "--no-syslog"}, command...)...)
			require.NoError(t, err)
			if r.Code == 0 { // the call has no such point
				if state != "ArtifactRollback" {
					e2e.Mender(t, d, "rollback")
				}
				at("2", "after "+state)
				break
			}
			where := "killed at " + fault
			said := d.MustRun(t, "mender-app", "resume")
			if strings.Contains(said, "waits") {
				if strings.Contains(d.MustRun(t, "cat", "/data/mender-app/tool/app.json"), `"phase": "installed"`) {
					at("4", where)
				}
				e2e.Mender(t, d, "install", files["4"]) // it undoes what was left
				e2e.Mender(t, d, "rollback")
			}
			at("2", where)
		}
		require.Greater(t, kills, 10, state)
		t.Logf("figures: a sub-module that overwrites: %d kills in %s", kills, state)
	}
}

// A sub-module that fills the disk in LOAD is named, and the space is freed: the
// previous release is whole, and the next update succeeds.
func TestSubmoduleThatFillsTheDisk(t *testing.T) {
	t.Parallel()
	bed.Require(t, "mender-artifact")
	d := bed.StartWithoutEngine(t)
	require.NoError(t, d.Disk("/data/mender-app", 32<<20))
	filling := strings.Replace(e2e.PlainSubmodule, "LOAD) ", "LOAD) [ ! -e /run/fill ] || cat /dev/zero >\"$MODULE_TMPDIR/fill\" || { echo 'error: no space left' >&2; exit 7; }; ", 1)
	require.NoError(t, os.WriteFile(d.Share("plain"), []byte(filling), 0o755))
	d.MustRun(t, "install", "-m755", d.Share("plain"), "/usr/share/mender/app-modules/v1/plain")
	one := e2e.PlainRelease(t, d, "1", map[string]string{"tool": "tool one"})
	two := e2e.PlainRelease(t, d, "2", map[string]string{"tool": "tool two"})
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	d.MustRun(t, "touch", "/run/fill")
	said := e2e.MenderFails(t, d, "install", two)
	require.Contains(t, said, "plain LOAD: no space left")
	d.MustRun(t, "rm", "/run/fill")
	d.MustRun(t, "mender-app", "resume")
	require.Equal(t, "tool one", d.MustRun(t, "cat", "/data/plain/tool/tool"))
	require.Equal(t, "true\n", d.MustRun(t, "/usr/share/mender/app-modules/v1/plain", "HEALTHY", "tool"))
	require.Empty(t, d.MustRun(t, "sh", "-c", "find /data/mender-app -name fill"))
	e2e.Mender(t, d, "install", two)
	e2e.Mender(t, d, "commit")
	require.Equal(t, "tool two", d.MustRun(t, "cat", "/data/plain/tool/tool"))
}
