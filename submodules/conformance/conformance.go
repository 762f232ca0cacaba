// Package conformance tests any sub-module against PROTOCOL.md, as the process
// it is: somebody who writes one in another language runs the same tests as
// those that come with mender-app.
//
// Run needs nothing but the executable. RunApplication plays the life of an
// application, for which a Fixture brings what only its orchestrator knows.
package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// limit bounds each call of the suite.
const limit = 3 * time.Minute

// raw runs the executable as it is, with the environment of cfg.
func raw(t *testing.T, m *submodules.Module, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.Path, args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}, m.Config.Env...)
	if m.Config.ConfigDir != "" {
		cmd.Env = append(cmd.Env, submodules.EnvConfigDir+"="+m.Config.ConfigDir)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// failed checks that a call ended with the code and said why in its last line.
func failed(t *testing.T, want int, code int, stdout, stderr string) {
	t.Helper()
	require.Equal(t, want, code, stderr)
	require.Empty(t, stdout, "standard output carries replies only")
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	require.True(t, strings.HasPrefix(lines[len(lines)-1], "error: "), "the last line of standard error is the error's: %q", stderr)
	require.True(t, strings.HasSuffix(stderr, "\n"), "whole lines")
}

// verbs with an application as their first argument, and how many more follow.
var verbs = map[string][]string{
	submodules.VerbExportManifest: {"APP", "/dir"},
	submodules.VerbSave:           {"APP", "url", "/path"},
	submodules.VerbLoad:           {"APP", "url", "/path"},
	submodules.VerbList:           {"APP"},
	submodules.VerbLsComponents:   {"APP"},
	submodules.VerbDelete:         {"url", "APP"},
	submodules.VerbRollout:        {"APP", "/dir"},
	submodules.VerbRollback:       {"APP", "/dir"},
	submodules.VerbPurge:          {"APP"},
	submodules.VerbStop:           {"APP", "/dir"},
	submodules.VerbStart:          {"APP", "/dir"},
	submodules.VerbAlive:          {"APP"},
	submodules.VerbHealthy:        {"APP"},
	submodules.VerbVerify:         {"APP"},
	submodules.VerbSync:           {"APP"},
	submodules.VerbRepair:         {"APP", "/dir"},
	submodules.VerbStorage:        {"APP"},
}

// Run tests what needs no orchestrator: arguments, replies, exit codes. The
// sub-module must speak protocol 1.1.
func Run(t *testing.T, m *submodules.Module) {
	t.Run("PROTOCOL", func(t *testing.T) {
		info, err := m.Describe(t.Context())
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(info.Protocol, "1."), info.Protocol)
		require.NotEqual(t, "1.0", info.Protocol, "PROTOCOL is not answered")
		require.NotEmpty(t, info.Name)
		require.NotEmpty(t, info.Version)
	})
	t.Run("REQS", func(t *testing.T) {
		code, out, _ := raw(t, m, submodules.VerbReqs)
		require.Zero(t, code)
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			if line != "" {
				require.Regexp(t, `^[^:\s]+:(error|warning)$`, line)
			}
		}
	})
	t.Run("usage", func(t *testing.T) {
		for _, args := range [][]string{{}, {"NO_SUCH_VERB"}, {"list", "app"}, {submodules.VerbList, "app", "more"}, {submodules.VerbReqs, "more"}} {
			code, out, errs := raw(t, m, args...)
			require.Equal(t, submodules.CodeUsage, code, "%q: %s", args, errs)
			require.Empty(t, out)
		}
		for verb, args := range verbs {
			code, out, errs := raw(t, m, append([]string{verb}, args[1:]...)...)
			failed(t, submodules.CodeUsage, code, out, errs)
		}
	})
	t.Run("names", func(t *testing.T) {
		for _, name := range []string{"", ".", "..", "../x", "a/b", "-x", "a\nb", strings.Repeat("a", 129)} {
			for verb, args := range verbs {
				call := []string{verb}
				for _, a := range args {
					call = append(call, strings.ReplaceAll(a, "APP", name))
				}
				code, out, errs := raw(t, m, call...)
				failed(t, submodules.CodeUsage, code, out, errs)
			}
		}
	})
	t.Run("help", func(t *testing.T) {
		code, out, _ := raw(t, m, "--help")
		require.Zero(t, code)
		for verb := range verbs {
			require.Contains(t, out, verb)
		}
	})
}

// Release is one version of a Fixture's application.
type Release struct {
	Components []submodules.Component
	// Content gives the path of each component's content, by URL.
	Content map[string]string
	// Manifests are the files of the release.
	Manifests map[string]string
}

// Fixture is what the suite cannot know about an orchestrator.
type Fixture struct {
	Module *submodules.Module
	App    string
	// Good and Better are releases that become healthy and differ in their
	// one component's content; both call it by the same URL. Bad is one that
	// never becomes healthy.
	Good, Better, Bad Release
	// Damage, if set, damages a component in the store, so that it is listed
	// and not whole; it is used with the feature repair.
	Damage func(submodules.Component)
}

// RunApplication plays the life of an application.
func RunApplication(t *testing.T, f Fixture) {
	m, ctx := f.Module, t.Context()
	store := t.TempDir()
	info, err := m.Describe(ctx)
	require.NoError(t, err)

	// place makes the release's manifests those in force.
	place := func(id string, r Release) string {
		dir := filepath.Join(store, f.App, "releases", id, "manifests")
		for name, text := range r.Manifests {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		link := filepath.Join(store, f.App, "manifests")
		require.NoError(t, os.RemoveAll(link))
		require.NoError(t, os.Symlink(dir, link))
		return link
	}
	request := func(r Release) submodules.Request {
		return submodules.Request{App: f.App, Components: r.Components}
	}
	load := func(r Release, options ...string) {
		t.Helper()
		for _, c := range r.Components {
			req := request(r)
			req.URL, req.Path, req.Options = c.URL, r.Content[c.URL], options
			require.NoError(t, m.Load(ctx, req))
			require.NoError(t, m.Load(ctx, req), "LOAD is idempotent")
		}
		if info.Has(submodules.FeatureSync) {
			require.NoError(t, m.Sync(ctx, request(r)))
		}
		if info.Has(submodules.FeatureVerify) {
			bad, err := m.Verify(ctx, request(r))
			require.NoError(t, err)
			require.Empty(t, bad)
		}
	}
	healthy := func() bool {
		t.Helper()
		ok, err := m.Healthy(ctx, submodules.Request{App: f.App})
		require.NoError(t, err)
		return ok
	}
	hasOne := func(want submodules.Component) bool {
		t.Helper()
		list, err := m.List(ctx, submodules.Request{App: f.App})
		require.NoError(t, err)
		return slices.ContainsFunc(list, func(c submodules.Component) bool { return c.Digest == want.Digest })
	}
	has := func(r Release) bool {
		t.Helper()
		return !slices.ContainsFunc(r.Components, func(c submodules.Component) bool { return !hasOne(c) })
	}
	var options []string
	if info.Has(submodules.FeatureStage) {
		options = []string{submodules.OptionStage}
	}
	rollout := func(id string, r Release) error {
		t.Helper()
		req := request(r)
		req.Dir = place(id, r)
		return m.Rollout(ctx, req)
	}

	require.False(t, healthy(), "nothing is installed")
	require.Error(t, rollout("good", f.Good), "ROLLOUT without its components is refused")
	require.False(t, healthy())

	load(f.Good, options...)
	require.True(t, has(f.Good))
	require.NoError(t, rollout("good", f.Good))
	require.True(t, healthy())
	require.NoError(t, rollout("good", f.Good), "ROLLOUT is idempotent")

	load(f.Better, options...)
	load(f.Bad, options...)
	require.True(t, healthy(), "LOAD changes nothing that runs")
	require.NoError(t, rollout("better", f.Better))
	require.True(t, healthy())

	err = rollout("bad", f.Bad)
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.False(t, healthy())
	req := request(f.Better)
	req.Dir = place("better", f.Better)
	req.FailedDir = filepath.Join(store, f.App, "releases", "bad", "manifests")
	require.NoError(t, m.Rollback(ctx, req))
	require.True(t, healthy())
	require.NoError(t, m.Rollback(ctx, req), "ROLLBACK is idempotent")

	// What is in use stays; what is not, goes.
	for _, c := range f.Better.Components {
		require.NoError(t, m.Delete(ctx, submodules.Request{App: f.App, URL: c.URL, Components: []submodules.Component{c}}))
	}
	require.True(t, healthy())
	require.True(t, has(f.Better))
	for _, c := range f.Good.Components {
		// Under another name it is still needed, so it stays.
		other := c
		other.URL = c.URL + "-other"
		req := submodules.Request{App: f.App, URL: c.URL, Components: []submodules.Component{c, other}}
		if info.Has(submodules.FeatureComponents) {
			req.Path, req.Options = os.DevNull, options
			req.URL = other.URL
			require.NoError(t, m.Load(ctx, req), "LOAD of what is present moves no content")
			req.URL = c.URL
			require.NoError(t, m.Delete(ctx, req))
			require.NoError(t, m.Delete(ctx, req), "DELETE is idempotent")
			require.True(t, hasOne(c))
			req.URL = other.URL
		}
		req.Components = slices.DeleteFunc(req.Components, func(o submodules.Component) bool { return o.URL != req.URL })
		require.NoError(t, m.Delete(ctx, req))
		require.NoError(t, m.Delete(ctx, req), "DELETE is idempotent")
	}
	require.False(t, has(f.Good))
	require.True(t, healthy())
	if info.Has(submodules.FeatureVerify) {
		bad, err := m.Verify(ctx, request(f.Good))
		require.NoError(t, err)
		require.Len(t, bad, len(f.Good.Components))
	}

	req = request(f.Better)
	req.Dir = place("better", f.Better)
	require.NoError(t, m.Stop(ctx, req))
	require.NoError(t, m.Stop(ctx, req), "STOP is idempotent")
	alive, err := m.Alive(ctx, submodules.Request{App: f.App})
	require.NoError(t, err)
	require.False(t, alive)
	require.NoError(t, m.Start(ctx, req))
	require.NoError(t, m.Start(ctx, req), "START is idempotent")
	require.Eventually(t, healthy, time.Minute, time.Second)

	out := t.TempDir()
	require.NoError(t, m.ExportManifest(ctx, submodules.Request{App: f.App, Dir: out}))
	for name, text := range f.Better.Manifests {
		got, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	for _, c := range f.Better.Components {
		file := filepath.Join(out, "component")
		req := request(f.Better)
		req.URL, req.Path = c.URL, file
		require.NoError(t, m.Save(ctx, req))
		fi, err := os.Stat(file)
		require.NoError(t, err)
		require.Positive(t, fi.Size())
	}

	if info.Has(submodules.FeatureRepair) {
		runRepair(t, f, request(f.Better), func() error { return rollout("better", f.Better) }, healthy)
	}
	if info.Has(submodules.FeatureEngine) {
		engine, err := m.Engine(ctx, submodules.Request{})
		require.NoError(t, err)
		require.NotEmpty(t, engine.Name)
		require.Regexp(t, `^v?[0-9]+\.[0-9]+`, engine.Version)
	}
	if info.Has(submodules.FeatureStorage) {
		dirs, err := m.Storage(ctx, submodules.Request{App: f.App})
		require.NoError(t, err)
		for _, dir := range dirs {
			require.True(t, filepath.IsAbs(dir))
			require.DirExists(t, dir)
		}
	}

	require.NoError(t, m.Purge(ctx, submodules.Request{App: f.App}))
	require.NoError(t, m.Purge(ctx, submodules.Request{App: f.App}), "PURGE is idempotent")
	list, err := m.List(ctx, submodules.Request{App: f.App})
	require.NoError(t, err)
	require.Empty(t, list)
	require.False(t, healthy())
}

// runRepair repairs the release that runs.
func runRepair(t *testing.T, f Fixture, req submodules.Request, rollout func() error, healthy func() bool) {
	m, ctx := f.Module, t.Context()
	repair := func(dir, source string, options ...string) ([]string, error) {
		r := req
		r.Dir, r.Path, r.Options = dir, source, options
		return m.Repair(ctx, r)
	}
	left := func(dir string) []string {
		t.Helper()
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	own := t.TempDir()
	apps, err := repair(own, "")
	require.NoError(t, err)
	require.Empty(t, apps, "what is whole needs no repair")
	require.Empty(t, left(own))
	_, err = repair(own, "", submodules.OptionFinish)
	require.NoError(t, err)
	require.Empty(t, left(own))
	require.True(t, healthy())
	if f.Damage == nil {
		return
	}
	c := f.Better.Components[0]
	f.Damage(c)
	bad, err := m.Verify(ctx, req)
	require.NoError(t, err)
	require.NotEmpty(t, bad)
	for _, line := range bad {
		require.True(t, strings.HasPrefix(line, c.URL+": "), line)
	}
	_, err = repair(own, "")
	require.ErrorIs(t, err, submodules.ErrContent, "nothing has what is missing")
	require.Empty(t, left(own))
	require.True(t, healthy(), "nothing was changed")

	source := t.TempDir()
	content, err := os.ReadFile(f.Better.Content[c.URL])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(source, "content"), content, 0o644))
	apps, err = repair(own, source)
	require.NoError(t, err)
	require.Equal(t, []string{f.App}, apps)
	again, err := repair(own, "", submodules.OptionFinish)
	require.NoError(t, err)
	require.Equal(t, apps, again, "said again until the directory is gone")
	bad, err = m.Verify(ctx, req)
	require.NoError(t, err)
	require.Empty(t, bad)
	require.NoError(t, rollout())
	require.True(t, healthy())
}
