package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// protocol is the text of PROTOCOL.md.
func protocol(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../PROTOCOL.md")
	require.NoError(t, err)
	return string(text)
}

// example is the sub-module that PROTOCOL.md shows.
func example(t *testing.T) string {
	t.Helper()
	_, text, ok := strings.Cut(protocol(t), "```sh\n")
	require.True(t, ok)
	text, _, ok = strings.Cut(text, "```")
	require.True(t, ok)
	return text
}

// fixture writes releases of files for the example.
func fixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for release, content := range map[string]string{"good": "tool one", "better": "tool two", "bad": "tool bad"} {
		for name, text := range map[string]string{
			"manifests/files": "tool\ndata\n", "manifests/check": `! grep -q bad "$1/tool"` + "\n",
			"components/tool": content, "components/data": "the same",
		} {
			path := filepath.Join(dir, release, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
	return dir
}

// check runs a script through Check, with the fixture if dir is not "".
func check(t *testing.T, script, dir string, change ...func(*Options)) *Report {
	t.Helper()
	o := Options{Path: filepath.Join(t.TempDir(), "example"), Env: []string{"EXAMPLE_ROOT=" + t.TempDir()}, Kills: 2}
	require.NoError(t, os.WriteFile(o.Path, []byte(script), 0o755))
	if dir != "" {
		f, err := ReadFixture(dir)
		require.NoError(t, err)
		o.Fixture = f
	}
	for _, c := range change {
		c(&o)
	}
	r, err := Check(t.Context(), o)
	require.NoError(t, err)
	return r
}

// The example of PROTOCOL.md passes all checks.
func TestExample(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a program for each call; left out of -short")
	}
	t.Parallel()
	root := t.TempDir()
	r := check(t, example(t), fixture(t), func(o *Options) { o.Env = []string{"EXAMPLE_ROOT=" + root} })
	require.Empty(t, r.Failed())
	require.Equal(t, "1.1", r.Protocol)
	require.Equal(t, "example", r.Name)
	require.Greater(t, r.Count(Pass), 100)
	left, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left behind")
	require.NotContains(t, fmt.Sprint(r.Findings), "a step before failed")
	for _, verb := range []string{submodules.VerbLoad, submodules.VerbRollout} {
		require.True(t, slices.Contains(r.Findings, Finding{verb, "killed in the middle, and called again", rely(1), Pass, ""}), verb)
	}

	// Each section that a check cites exists in PROTOCOL.md.
	doc, seen := protocol(t), map[string]bool{}
	for _, f := range r.Findings {
		seen[f.Section] = true
		section, number, ok := strings.Cut(f.Section, ", ")
		_, text, found := strings.Cut(doc, "\n## "+section+"\n")
		require.True(t, found, f.Section)
		if ok {
			text, _, _ = strings.Cut(text, "\n## ")
			require.Regexp(t, `(?m)^`+regexp.QuoteMeta(number)+`\. `, text, f.Section)
		}
	}
	require.Greater(t, len(seen), 8)
}

// Each fault is found by the check made for it.
func TestBrokenSubmodules(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	t.Parallel()
	good, dir := example(t), fixture(t)
	for name, broken := range map[string]struct {
		old, new    string // what of the example is replaced
		verb, check string
		surface     bool // nothing has to be installed for it
	}{
		"a wrong exit code":             {`fail 4 "$url is not there"; case`, `fail 1 "$url is not there"; case`, "SAVE", "a component that is not there: exit code 4", true},
		"an unhealthy release succeeds": {`healthy || fail 6 "$app is not well"`, "true", "ROLLOUT", "a release that does not become healthy fails", false},
		"another code for unhealthy":    {"fail 6", "fail 5", "ROLLOUT", "a release that does not become healthy fails", false},
		"LIST is garbage":               {"[&]", "((&", "LIST", "an application that is not there: a list without components", true},
		"LIST lies":                     {`sha256:\1`, `sha256:\10`, "LOAD", "what it brought in is there and whole", false},
		"the older name is missing":     {"LIST:2 | LS_COMPONENTS:2", "LIST:2", "LS_COMPONENTS", "prints what LIST prints", true},
		"LOAD works once":               {`LOAD) `, `LOAD) [ ! -e "$dir/files/$url" ] || fail 1 "it is there"; `, "LOAD", "succeeds, twice", false},
		"LOAD cuts":                     {`cp "$4" "$dir/files/.new"`, `head -c4 "$4" >"$dir/files/.new"`, "LOAD", "what it brought in is there and whole", false},
		"DELETE works once":             {`|| rm -f "$dir/files/$url"`, `|| rm "$dir/files/$url"`, "DELETE", "a component that is not there is no error", true},
		"DELETE takes what is in use":   {`grep -qxFs -e "$url" "$dir/current/files" ||`, "", "DELETE", "what is in use stays", false},
		"STOP works once":               {`STOP) touch "$dir/stopped"`, `STOP) mkdir "$dir/stopped"`, "STOP", "succeeds, twice", false},
		"STOP does nothing":             {`touch "$dir/stopped"`, ":", "ALIVE", "false after STOP", false},
		"PURGE leaves things":           {`PURGE) rm -rf "$dir"`, `PURGE) rm -rf "$dir/current"`, "LIST", "a list without components after PURGE", false},
		"ROLLBACK does nothing":         {"ROLLOUT | ROLLBACK | START)", "ROLLBACK) ;;\nROLLOUT | START)", "", "", false},
		"unknown verbs are ignored":     {`*) fail 2 "unknown`, `NO_SUCH_VERB:*) exit 0 ;; *) fail 2 "unknown`, "(unknown)", "an unknown verb is refused", true},
		"small letters":                 {`case $verb:$# in`, `case $verb in list) verb=LIST ;; esac; case $verb:$# in`, "(unknown)", "a verb in small letters is refused", true},
		"too many arguments":            {"HEALTHY:2 |", "HEALTHY:* |", "HEALTHY", "too many arguments are refused", true},
		"names are not checked":         {`*[!A-Za-z0-9_.-]*) fail 2`, `*[!A-Za-z0-9_.-]*) [ "$verb" = HEALTHY ] || fail 2`, "HEALTHY", "what is no name of an application is refused", true},
		"words of options matter":       {"LIST | LS_COMPONENTS) for", `LIST | LS_COMPONENTS) [ -z "${OPTIONS-}" ] || fail 2 "unknown option"; for`, "LIST", "unknown options and variables are ignored", true},
		"REQS is prose":                 {"echo sha256sum:error", "echo it needs sha256sum", "REQS", "names commands", true},
		"the answer has no word":        {"HEALTHY) if healthy; then echo true", "HEALTHY) if healthy; then echo fine", "HEALTHY", "true after ROLLOUT", false},
		"PROTOCOL changes":              {`"version":"1"`, `"version":"'$$'"`, "PROTOCOL", "says what it speaks", true},
		"failures without a reason":     {`fail() { echo "error: $2" >&2;`, "fail() {", "SAVE", "says why it failed", true},
		"megabytes":                     {"LIST | LS_COMPONENTS) for", "LIST | LS_COMPONENTS) yes | head -c 9000000; for", "LIST", "bounds what it prints", true},
		"lines without an end":          {"LIST | LS_COMPONENTS) for", "LIST | LS_COMPONENTS) head -c 9000 /dev/zero | tr '\\0' x >&2; for", "LIST", "bounds what it prints", true},
		"a process stays":               {"LIST | LS_COMPONENTS) for", "LIST | LS_COMPONENTS) sleep 20 >/dev/null 2>&1 & for", "LIST", "leaves no process", true},
		"a process runs away":           {"LIST | LS_COMPONENTS) for", "LIST | LS_COMPONENTS) setsid sleep 20 >/dev/null 2>&1 & for", "LIST", "leaves no process", true},
		"an application outlives":       {`healthy || fail 6`, `[ -e "$dir/pid" ] || setsid sleep 60 >/dev/null 2>&1 & healthy || fail 6`, "PURGE", "ends the application's processes", false},
		"it never ends":                 {"HEALTHY) if healthy", `HEALTHY) [ "$verb" = ALIVE ] || sleep 60; if healthy`, "HEALTHY", "ends in time", false},
		"TERM is ignored":               {"ROLLOUT | ROLLBACK | START)", `ROLLOUT | ROLLBACK | START) [ "$verb" != START ] || { trap "sleep 10" TERM; sleep 0.4; };`, "START", "ends soon after TERM", false},
		"a kill leaves a half": {
			`cp "$4" "$dir/files/.new"; mv "$dir/files/.new" "$dir/files/$url"`,
			`[ ! -e "$dir/half" ] || fail 1 "a LOAD was killed"
	touch "$dir/half"; sleep 0.3; cp "$4" "$dir/files/$url"; rm "$dir/half"`,
			"LOAD", "killed in the middle, and called again", false,
		},
		"it needs the caller's HOME": {`dir=${EXAMPLE_ROOT`, `: "${USER:?}"; dir=${EXAMPLE_ROOT`, "REQS", "names commands", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, good, broken.old)
			script := strings.Replace(good, broken.old, broken.new, 1)
			o := Options{Path: filepath.Join(t.TempDir(), "example"), Env: []string{"EXAMPLE_ROOT=" + t.TempDir()}, Kills: 1, Limit: 5 * time.Second}
			require.NoError(t, os.WriteFile(o.Path, []byte(script), 0o755))
			s, end, err := newSuite(t.Context(), o)
			require.NoError(t, err)
			defer end()
			require.NoError(t, s.describe())
			f, err := ReadFixture(dir)
			require.NoError(t, err)
			if !broken.surface {
				s.life(f)
			} else if s.surface() == nil {
				s.nothingInstalled()
			}
			s.conduct()
			var failed []string
			for _, f := range s.report.Failed() {
				failed = append(failed, f.Verb+": "+f.Check)
				require.NotEmpty(t, f.Reason)
			}
			if broken.check == "" {
				// The caller asks HEALTHY and makes up for it: it is contained.
				require.NotContains(t, failed, "HEALTHY: true after the release went back")
				return
			}
			require.Contains(t, failed, broken.verb+": "+broken.check)
		})
	}
}

// A cancelled run ends at once and leaves no process.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "slow")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nsleep 1000.5\n"), 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := Check(ctx, Options{Path: path})
	require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	require.Less(t, time.Since(begun), 10*time.Second)
	out, _ := exec.Command("pgrep", "-f", "sleep 1000.5").Output()
	require.Empty(t, string(out))
}

// A run that is cancelled during an application's life removes the application.
func TestGivenUpInTheMiddle(t *testing.T) {
	t.Parallel()
	f, err := ReadFixture(fixture(t))
	require.NoError(t, err)
	root, path := t.TempDir(), filepath.Join(t.TempDir(), "example")
	script := strings.Replace(example(t), "STOP) ", "STOP) sleep 1000; ", 1)
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, end, err := newSuite(ctx, Options{Path: path, Env: []string{"EXAMPLE_ROOT=" + root}, Kills: 1})
	require.NoError(t, err)
	defer end()
	require.NoError(t, s.describe())
	go func() { // STOP comes after the releases are in
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			if out, _ := exec.Command("pgrep", "-f", path+" STOP").Output(); len(out) > 0 {
				cancel()
			}
		}
	}()
	require.Panics(t, func() { s.life(f) })
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	left, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestFixtureIsChecked(t *testing.T) {
	t.Parallel()
	dir := fixture(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "bad")))
	_, err := ReadFixture(dir)
	require.NoError(t, err)
	list := filepath.Join(dir, "good/components.json")
	for text, want := range map[string]string{
		`[{"type":"file","url":"tool","file":"../../etc/passwd"}]`: "not below",
		`[{"type":"file","url":"tool","fil":"x"}]`:                 "unknown field",
		`[{"type":"image","url":"tool","file":"components/tool"}]`: "needs type, url and",
		`[]`: "no component",
		`[{"type":"file","url":"other","file":"components/tool"}]`: "no component other",
	} {
		require.NoError(t, os.WriteFile(list, []byte(text), 0o644))
		_, err = ReadFixture(dir)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.WriteFile(list, []byte(`[{"type":"file","url":"tool","file":"components/tool"}]`), 0o644))
	f, err := ReadFixture(dir)
	require.NoError(t, err)
	require.Len(t, f.Good.Components, 1)
	require.True(t, f.Good.Components[0].Digest.Valid())
}
