package e2e

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

// plainSubmodule is a sub-module of protocol 1.0, as a person writes one in an hour:
// LOAD overwrites a file in place, in two steps. The application that runs is a copy
// of the files at the time when it was started. It is healthy if the file "bad" is
// not among them and nothing has changed since.
const plainSubmodule = `#!/bin/sh
set -eu
verb=$1 root=/data/plain
start() { # APP DIR
	rm -rf "$root/$1.runs" && mkdir -p "$root/$1.runs"
	cp "$2/files.list" "$root/$1.runs/"
	while read -r name; do cp "$root/$1/$name" "$root/$1.runs/$name"; done <"$2/files.list"
	! grep -q bad "$root/$1.runs"/* || { echo "error: it is bad" >&2; exit 1; }
}
case $verb in
LOAD) mkdir -p "$root/$2"; head -c1 "$4" >"$root/$2/$3"; sleep "${PLAIN_LOAD_SLEEP:-0}"; cp "$4" "$root/$2/$3" ;;
SAVE) [ -f "$root/$2/$3" ] || exit 4; cp "$root/$2/$3" "$4" ;;
LIST|LS_COMPONENTS)
	printf '['; sep=
	for f in "$root/$2"/*; do [ ! -f "$f" ] || printf '%s{"type":"python-package","url":"%s"}' "$sep" "${f##*/}"; sep=,; done
	echo ']' ;;
DELETE) rm -f "$root/$3/$2" ;;
ROLLOUT) start "$2" "$3" ;;
ROLLBACK) cp "$3/files.list" "$root/$2.runs/" ;; # it trusts that nothing else has changed
STOP|START) ;;
PURGE) rm -rf "$root/$2" "$root/$2.runs" ;;
ALIVE|HEALTHY)
	while read -r name; do cmp -s "$root/$2/$name" "$root/$2.runs/$name" || { echo false; exit 1; }; done <"$root/$2.runs/files.list"
	echo true ;;
REQS) echo cp:error ;;
*) exit 2 ;;
esac
`

// plainRelease writes an artifact of files for plainSubmodule, in the shell
// reference's form.
func plainRelease(t *testing.T, d *bed.Device, version string, files map[string]string) string {
	t.Helper()
	return plainReleaseWith(t, d, version, files, nil)
}

// plainReleaseWith is plainRelease with a change to the artifact.
func plainReleaseWith(t *testing.T, d *bed.Device, version string, files map[string]string, change func(*bed.Handmade)) string {
	t.Helper()
	h := bed.Handmade{Name: "tool-" + version, Software: "tool"}
	h.Images = []bed.Member{{Name: "images/", Type: tar.TypeDir}}
	names := slices.Sorted(maps.Keys(files))
	var digests []string
	for _, name := range names {
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(files[name])))
		digests = append(digests, digest)
		dir := "images/" + digest
		h.Images = append(h.Images, bed.Member{Name: dir + "/", Type: tar.TypeDir},
			bed.Member{Name: dir + "/url-new.txt", Data: []byte(name + "\n")},
			bed.Member{Name: dir + "/url-current.txt", Data: []byte(name + "\n")},
			bed.Member{Name: dir + "/sums-new.txt", Data: []byte(digest + "\n")},
			bed.Member{Name: dir + "/sums-current.txt", Data: []byte(digest + "\n")},
			bed.Member{Name: dir + "/image.img", Data: []byte(files[name])})
	}
	slices.Sort(digests)
	meta, err := json.Marshal(map[string]any{
		"version": "1.0", "application_name": "tool", "orchestrator": "plain", "platform": bed.Platform(), "images": digests,
	})
	require.NoError(t, err)
	h.Metadata = string(meta)
	h.Manifests = []bed.Member{
		{Name: "manifests/", Type: tar.TypeDir},
		{Name: "manifests/files.list", Data: []byte(strings.Join(names, "\n") + "\n")},
	}
	if change != nil {
		change(&h)
	}
	path := d.Share("tool-" + version + ".mender")
	require.NoError(t, h.Write(path))
	return path
}

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
	require.NoError(t, os.WriteFile(d.Share("plain"), []byte(plainSubmodule), 0o755))
	d.MustRun(t, "install", "-m755", d.Share("plain"), "/usr/share/mender/app-modules/v1/plain")

	content := map[string]map[string]string{
		"1": {"tool": "tool one", "data": "the same"},
		"2": {"tool": "tool two", "data": "the same"},
		"3": {"tool": "tool bad", "data": "the same"},
		"4": {"tool": "tool four", "data": "other data"},
	}
	files := map[string]string{}
	for version, c := range content {
		files[version] = plainRelease(t, d, version, c)
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
	mender(t, d, "install", files["1"])
	mender(t, d, "commit")
	at("1", "installed")
	mender(t, d, "install", files["2"])
	at("2", "updated")
	mender(t, d, "commit")
	require.Contains(t, d.MustRun(t, "mender-app", "show", "tool"), "python-package  tool sha256:", "the type that LIST says")
	d.MustRun(t, "mender-app", "verify", "tool")
	d.MustRun(t, "sh", "-c", "echo more >>/data/plain/tool/data")
	r, err := d.Run("mender-app", "verify", "tool")
	require.NoError(t, err)
	require.Equal(t, submodules.CodeContent, r.Code)
	require.Contains(t, r.Stdout, "data: it is sha256:")
	d.MustRun(t, "sh", "-c", "printf 'the same' >/data/plain/tool/data")

	menderFails(t, d, "install", files["3"])
	at("2", "the failed release went back")
	wrong := plainReleaseWith(t, d, "5", content["4"], func(h *bed.Handmade) {
		for i := range h.Images {
			if h.Images[i].Data != nil && string(h.Images[i].Data) == "other data" {
				h.Images[i].Data = []byte("forged data")
			}
		}
	})
	require.Contains(t, menderFails(t, d, "install", wrong), "and should be sha256:")
	at("2", "a file that is not its sum is refused")
	mender(t, d, "install", files["4"])
	at("4", "updated again")
	mender(t, d, "rollback")
	at("2", "rolled back")
	d.MustRun(t, "mender-app", "rollback", "tool")
	at("1", "days later")
	d.MustRun(t, "mender-app", "rollback", "tool")
	at("2", "forth again")

	for _, state := range []string{"Download", "ArtifactInstall", "ArtifactRollback"} {
		kills := 0
		for ; ; kills++ {
			fault := fmt.Sprintf("app %s/*:%d:kill-both", state, kills+1)
			command := []string{"install", files["4"]}
			if state == "ArtifactRollback" {
				mender(t, d, command...)
				command = []string{"rollback"}
			}
			r, err := d.Run("env", append([]string{"MENDER_APP_FAULT=" + fault, "mender", "--no-syslog"}, command...)...)
			require.NoError(t, err)
			if r.Code == 0 { // the call has no such point
				if state != "ArtifactRollback" {
					mender(t, d, "rollback")
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
				mender(t, d, "install", files["4"]) // it undoes what was left
				mender(t, d, "rollback")
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
	filling := strings.Replace(plainSubmodule, "LOAD) ", "LOAD) [ ! -e /run/fill ] || cat /dev/zero >\"$MODULE_TMPDIR/fill\" || { echo 'error: no space left' >&2; exit 7; }; ", 1)
	require.NoError(t, os.WriteFile(d.Share("plain"), []byte(filling), 0o755))
	d.MustRun(t, "install", "-m755", d.Share("plain"), "/usr/share/mender/app-modules/v1/plain")
	one := plainRelease(t, d, "1", map[string]string{"tool": "tool one"})
	two := plainRelease(t, d, "2", map[string]string{"tool": "tool two"})
	mender(t, d, "install", one)
	mender(t, d, "commit")
	d.MustRun(t, "touch", "/run/fill")
	said := menderFails(t, d, "install", two)
	require.Contains(t, said, "plain LOAD: no space left")
	d.MustRun(t, "rm", "/run/fill")
	d.MustRun(t, "mender-app", "resume")
	require.Equal(t, "tool one", d.MustRun(t, "cat", "/data/plain/tool/tool"))
	require.Equal(t, "true\n", d.MustRun(t, "/usr/share/mender/app-modules/v1/plain", "HEALTHY", "tool"))
	require.Empty(t, d.MustRun(t, "sh", "-c", "find /data/mender-app -name fill"))
	mender(t, d, "install", two)
	mender(t, d, "commit")
	require.Equal(t, "tool two", d.MustRun(t, "cat", "/data/plain/tool/tool"))
}
