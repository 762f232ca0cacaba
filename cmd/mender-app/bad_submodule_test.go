package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// shellSubmodule keeps components as files and the release that runs as a copy of
// its manifests. The file "bad" in the directory of its configuration is run first.
const shellSubmodule = `#!/bin/sh
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
verb=$1 app=${2-} root=$MENDER_APP_CONFIG_DIR/shell
if [ -f "$MENDER_APP_CONFIG_DIR/bad" ]; then . "$MENDER_APP_CONFIG_DIR/bad"; fi
case $verb in
PROTOCOL) echo '{"protocol":"1.1","name":"shell","version":"1","features":[]}' ;;
REQS) echo sh:error ;;
LOAD) mkdir -p "$root/$app"; cp "$4" "$root/$app/.new"; mv "$root/$app/.new" "$root/$app/$3" ;;
SAVE) [ -f "$root/$app/$3" ] || exit 4; cp "$root/$app/$3" "$4" ;;
LIST) printf '['; comma=; for f in "$root/$app"/*; do [ ! -f "$f" ] || {
	printf '%s{"type":"image","url":"%s","digest":"sha256:%s"}' "$comma" "${f##*/}" "$(sha256sum <"$f" | cut -c1-64)"; comma=,; }; done; echo ']' ;;
DELETE) rm -f "$root/$3/$2" ;;
ROLLOUT | ROLLBACK | START) mkdir -p "$root"; cp "$3/compose.yaml" "$root/$app.runs" ;;
STOP) rm -f "$root/$app.runs" ;;
PURGE) rm -rf "$root/$app" "$root/$app.runs" ;;
ALIVE | HEALTHY) [ -f "$root/$app.runs" ] || { echo false; exit 1; }; echo true ;;
*) echo "error: unknown verb" >&2; exit 2 ;;
esac
`

// Whatever a sub-module does instead of what it should, it is named, it ends, and
// the device is at the previous release; if it is bad in the rollback as well, as soon
// as it is not. The next update, with a sub-module that is
// well again, succeeds.
func TestBadSubmodules(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for sub-modules that never end")
	}
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, os.Mkdir(ready, 0o755))
	for i, compose := range []string{"one", "two"} {
		a := devicetest.Artifact{Name: fmt.Sprint("shop-", i+1), App: "shop", Orchestrator: "shell", Compose: compose, Images: []string{"web=web-" + compose, "side=side"}}
		require.NoError(t, a.Write(filepath.Join(ready, fmt.Sprintf("v%d.mender", i+1))))
	}
	for name, bad := range map[string]struct {
		script string // $verb is the verb
		says   string // in the error; "": it does no harm, and the update succeeds
	}{
		"garbage in LIST":            {`[ $verb != LIST ] || { echo '((( not JSON'; exit 0; }`, ""},
		"megabytes of a reply":       {`[ $verb != LOAD ] || yes | head -c 20000000`, "shell LOAD: reply is longer"},
		"megabytes of a document":    {`[ $verb != PROTOCOL ] || { yes | head -c 20000000; exit 0; }`, "shell PROTOCOL: reply is longer"},
		"megabytes of errors":        {`[ $verb != LOAD ] || { yes | head -c 20000000 >&2; exit 1; }`, "shell LOAD: y"},
		"one line of megabytes":      {`[ $verb != LOAD ] || { head -c 20000000 /dev/zero | tr '\0' x >&2; exit 1; }`, "shell LOAD: xxxx"},
		"LOAD never ends":            {`[ $verb != LOAD ] || sleep 1000`, "shell LOAD"},
		"ROLLOUT never ends":         {`[ $verb != ROLLOUT ] || sleep 1000`, "shell ROLLOUT"},
		"ROLLOUT ignores TERM":       {`[ $verb != ROLLOUT ] || { trap '' TERM; sleep 1000; sleep 1000; }`, "shell ROLLOUT"},
		"LOAD forks away":            {`[ $verb != LOAD ] || { setsid sleep 30 & sleep 0.5; }`, ""},
		"LOAD leaves a child":        {`[ $verb != LOAD ] || { sleep 30 & }`, ""},
		"a signal ends it":           {`[ $verb != ROLLOUT ] || kill -9 $$`, "shell ROLLOUT: ended by killed"},
		"a code that is none":        {`[ $verb != ROLLOUT ] || exit 200`, "shell ROLLOUT: exit status 200"},
		"no space":                   {`[ $verb != LOAD ] || { head -c 9000000 /dev/zero >"$MODULE_TMPDIR/part"; echo "error: no space left on device" >&2; exit 7; }`, "shell LOAD: no space left"},
		"SAVE does not know its own": {`[ $verb != SAVE ] || { echo "error: what?" >&2; exit 2; }`, "copying it failed: shell SAVE: what?"},
		"SAVE writes nothing":        {`[ $verb != SAVE ] || exit 0`, "copying it failed: shell SAVE: nothing was written"},
		"features come later": {`if [ $verb = PROTOCOL ]; then
	if [ -f "$MENDER_APP_CONFIG_DIR/once" ]; then
		echo '{"protocol":"1.1","name":"shell","version":"1","features":["stage","verify","sync","components"]}'
		exit 0
	fi
	touch "$MENDER_APP_CONFIG_DIR/once"
fi`, "shell SYNC: unknown verb | the rollback failed"},
		"HEALTHY answers LIST":     {`case $verb in HEALTHY) echo '[]'; exit 0 ;; ROLLOUT) [ "$(cat "$3/compose.yaml")" = one ] || exit 6 ;; ROLLBACK) exit 0 ;; esac`, "shell ROLLOUT"},
		"everything fails but one": {`case $verb in LOAD | PROTOCOL | REQS | SAVE | LIST) ;; ROLLOUT) [ "$(cat "$3/compose.yaml")" = one ] || exit 1 ;; esac`, "shell ROLLOUT"},
		"the document is a number": {`[ $verb != PROTOCOL ] || { echo 42; exit 0; }`, ""},
		"the document is hostile":  {`[ $verb != PROTOCOL ] || { echo '{"protocol":"1.9","name":"../../x\u0000\n","version":[],"features":{"a":1}}'; exit 0; }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "device")
			require.NoError(t, os.CopyFS(dir, os.DirFS(ready)))
			d, err := devicetest.NewDevice(dir)
			require.NoError(t, err)
			conf, err := os.OpenFile(filepath.Join(dir, "app.conf"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = conf.WriteString("load_timeout = \"3s\"\nrollout_timeout = \"3s\"\n")
			require.NoError(t, err)
			require.NoError(t, conf.Close())
			require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/shell"), []byte(shellSubmodule), 0o755))
			run := func(args ...string) (string, error) {
				stdout, stderr, err := d.Run(nil, "mender-app", args...)
				return stdout + stderr, err
			}
			must := func(args ...string) string {
				t.Helper()
				out, err := run(args...)
				require.NoError(t, err, out)
				return out
			}
			at := func(version, compose string) {
				t.Helper()
				require.Contains(t, must("list"), "shop-"+version)
				for file, want := range map[string]string{"shop/web": "web-" + compose, "shop/side": "side", "shop.runs": compose + "\n"} {
					got, err := os.ReadFile(filepath.Join(dir, "fake/shell", file))
					require.NoError(t, err)
					require.Equal(t, want, string(got), file)
				}
				left, _ := filepath.Glob(filepath.Join(dir, "store/.mender-app/tmp/*"))
				require.Empty(t, left, "temporary files")
			}
			must("install", "--commit", "v1.mender")
			at("1", "one")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "fake/bad"), []byte(bad.script), 0o644))
			begun := time.Now()
			out, err := run("install", "--commit", "v2.mender")
			require.Less(t, time.Since(begun), 90*time.Second)
			t.Logf("%.400q", out)
			require.Less(t, len(out), 3<<20, "what it says is bounded")
			if name == "LOAD forks away" {
				require.Contains(t, out, "warning: shell LOAD left a process")
			}
			if bad.says == "" {
				require.NoError(t, err, out)
				at("2", "two")
			} else {
				require.Error(t, err)
				last := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]
				require.Contains(t, last, bad.says)
				require.Less(t, len(last), 10000)
				if strings.Contains(bad.says, "the rollback failed") { // it can be made up for
					require.NoError(t, os.WriteFile(filepath.Join(dir, "fake/bad"), nil, 0o644))
					must("resume")
				}
				at("1", "one")
			}
			require.NoError(t, os.Remove(filepath.Join(dir, "fake/bad")))
			must("install", "--commit", "v2.mender")
			at("2", "two")
			out2, _ := exec.Command("sh", "-c", `grep -lz "^MENDER_APP_CONFIG_DIR=`+dir+`" /proc/[0-9]*/environ 2>/dev/null`).Output()
			if name != "LOAD forks away" {
				require.Empty(t, string(out2), "processes are left")
			}
		})
	}
}
