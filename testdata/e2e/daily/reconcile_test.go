package daily

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A container that was removed by hand comes back, a newer staged artifact installs itself
// if its policy says so, and the older one comes back when it is withdrawn. What is stopped,
// or not automatic, stays as it is.
func TestReconcile(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	policy := func(text string) string {
		file := filepath.Join(t.TempDir(), "app.toml")
		require.NoError(t, os.WriteFile(file, []byte("managed = true\n"+text), 0o644))
		return file
	}
	made := func(version, text string) string {
		return e2e.Generate(t, d, "shop", "shop-"+version, version, e2e.Compose(version), "--application-version", version, "--policy", policy(text), e2e.Archive(t, e2e.Web(t, version, "")), e2e.Archive(t, e2e.Stock(t)))
	}
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app.conf"), []byte("allow_unsigned = true\n"), 0o644))
	reconcile := func() string { return d.MustRun(t, "mender-app", "reconcile", "--event", "bundles") }
	first := made("1", "[[reapply]]\non = 'new-limits'\n")
	w := e2e.Watch(t, d)
	d.MustRun(t, "mender-app", "install", "--commit", first)
	e2e.Says(t, w, "web 1")
	require.Contains(t, reconcile(), "nothing to do")

	remove := func() { d.MustRun(t, "sh", "-c", "docker rm -f $(docker ps --quiet)") }
	remove()
	hook := func(script string) {
		file := d.Path("/etc/mender/mender-app/hooks.d/before-all/10-ask")
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	hook("echo not now; exit 1")
	r, err := d.Run("mender-app", "reconcile", "--for", "0s")
	require.NoError(t, err)
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "hook before-all: ")
	require.Contains(t, r.Stderr, "it exited with 1: not now")
	require.Empty(t, d.MustRun(t, "docker", "ps", "--quiet"))
	hook("docker ps --quiet | grep . && exit 1; exit 0") // it is asked before anything is started
	require.Contains(t, reconcile(), "shop: started again")
	hook("exit 0")
	e2e.Says(t, w, "web 1")
	require.Contains(t, d.MustRun(t, "mender-app", "history", "shop", "--limit", "1"), "reconciled")

	// So does one whose network is gone too.
	d.MustRun(t, "bash", "-ec", "docker stop -t 1 $(docker ps --quiet); docker network prune -f")
	require.Contains(t, reconcile(), "shop: started again")
	e2e.Says(t, w, "web 1")

	// So does one of which somebody else's container has taken a name, whatever the reason of
	// the call. That container goes on under another name.
	taken := func() {
		d.MustRun(t, "bash", "-ec", "docker rm -f shop-stock-1; docker run -d --name shop-stock-1 shop/stock:1")
	}
	for _, call := range [][]string{{"reconcile", "--event", "bundles"}, {"trigger", "new-limits"}} {
		taken()
		require.Contains(t, d.MustRun(t, "mender-app", call...), "shop: ", call)
		require.Equal(t, "true", strings.TrimSpace(d.MustRun(t, "docker", "inspect", "--format", "{{.State.Running}}", "shop-stock-1-other")), call)
		d.MustRun(t, "mender-app", "health", "shop")
		d.MustRun(t, "docker", "rm", "-f", "shop-stock-1-other")
	}

	// Overrides of the device are looked at after an event that the policy names, and what
	// they do not reach goes on undisturbed.
	containers := func() string { return d.MustRun(t, "docker", "ps", "--quiet", "--no-trunc") }
	before := containers()
	trigger := func(event string) string { return d.MustRun(t, "mender-app", "trigger", event) }
	override := d.Path("/etc/mender/mender-app/overrides.d/shop/10-limits.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(override), 0o755))
	require.NoError(t, os.WriteFile(override, []byte("services: {web: {labels: {limits: small}}}\n"), 0o644))
	require.Contains(t, trigger("new-colours"), "nothing to do")
	require.Contains(t, trigger("new-limits"), "shop: rolled out again")
	require.NotEmpty(t, d.MustRun(t, "docker", "ps", "--quiet", "--filter", "label=limits=small"))
	kept := 0
	for _, id := range strings.Fields(containers()) {
		if strings.Contains(before, id) {
			kept++
		}
	}
	require.Equal(t, len(strings.Fields(before))-1, kept)
	before = containers()
	require.Contains(t, trigger("new-limits"), "nothing to do")
	require.Equal(t, before, containers())

	// A value reaches what names it.
	require.NoError(t, os.WriteFile(override, []byte("services: {web: {labels: {limits: '${LIMITS:-small}'}}}\n"), 0o644))
	require.Contains(t, d.MustRun(t, "mender-app", "values", "set", "COLOUR=blue"), "nothing to do")
	require.Contains(t, d.MustRun(t, "mender-app", "values", "set", "--app", "shop", "LIMITS=la $rge"), "shop: rolled out again: values that it uses have changed")
	require.NotEmpty(t, d.MustRun(t, "docker", "ps", "--quiet", "--filter", "label=limits=la $rge"))

	// Disabled it does not run, and its images stay.
	require.Contains(t, d.MustRun(t, "mender-app", "values", "set", "--app", "shop", "enabled=false"), "shop: disabled: the operator's value enabled is false")
	require.Empty(t, d.MustRun(t, "docker", "ps", "--quiet"))
	r, err = d.Run("mender-app", "start", "shop")
	require.NoError(t, err)
	require.Equal(t, 9, r.Code)
	require.Contains(t, r.Stderr, "shop is disabled: the operator's value enabled is false")
	d.MustRun(t, "mender-app", "verify", "shop")
	require.Contains(t, d.MustRun(t, "mender-app", "values", "unset", "--app", "shop", "enabled"), "shop: enabled")
	require.NotEmpty(t, d.MustRun(t, "docker", "ps", "--quiet", "--filter", "label=limits=la $rge"))
	r, err = d.Run("mender-app", "values", "set", "COMPOSE_FILE=/etc/passwd")
	require.NoError(t, err)
	require.Equal(t, 2, r.Code)
	d.MustRun(t, "mender-app", "stop", "shop")
	require.Contains(t, reconcile(), "nothing to do")
	d.MustRun(t, "mender-app", "start", "shop")

	d.MustRun(t, "mender-app", "stage", first)
	d.MustRun(t, "mender-app", "stage", made("2", ""))
	require.Contains(t, reconcile(), "nothing to do", "it is not automatic")
	d.MustRun(t, "mender-app", "stage", made("3", "upgrades = {automatic = true}\n"))
	require.Contains(t, reconcile(), "shop: installed shop-3")
	e2e.Says(t, w, "web 3")
	d.MustRun(t, "mender-app", "unstage", "shop-2")
	d.MustRun(t, "mender-app", "unstage", "shop-3")
	require.Contains(t, reconcile(), "shop: installed shop-1: the newer artifact was withdrawn")
	e2e.Says(t, w, "web 1")
}

// A release that does not run on a newer engine is replaced by a staged one that does, after
// the engine was updated and not before.
func TestEngineUpgradeBringsItsRelease(t *testing.T) {
	newer := bed.Engines[2]
	newer.Require(t)
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app.conf"), []byte("allow_unsigned = true\n"), 0o644))
	made := func(version, policy string) string {
		file := filepath.Join(t.TempDir(), "app.toml")
		require.NoError(t, os.WriteFile(file, []byte("managed = true\n"+policy), 0o644))
		return e2e.Generate(t, d, "shop", "shop-"+version, version, e2e.Compose(version), "--application-version", version, "--policy", file, e2e.Archive(t, e2e.Web(t, version, "")), e2e.Archive(t, e2e.Stock(t)))
	}
	d.MustRun(t, "mender-app", "install", "--commit", made("1", "orchestrator = {maximum = '20.10'}\n"))
	d.MustRun(t, "mender-app", "stage", made("2", "orchestrator = {minimum = '28.0'}\nengine_upgrades = {automatic = true, timing = 'post'}\n"))
	require.Contains(t, d.MustRun(t, "mender-app", "reconcile"), "nothing to do")
	require.Contains(t, d.MustRun(t, "mender-app", "engine-check", "28.5"), "the staged release 2 runs on it")

	require.NoError(t, d.StopEngine())
	d.Engine = newer
	require.NoError(t, d.StartEngine())
	w := e2e.Watch(t, d)
	require.Contains(t, d.MustRun(t, "mender-app", "reconcile"), "shop: installed shop-2")
	e2e.Says(t, w, "web 2")
	require.Contains(t, d.MustRun(t, "mender-app", "reconcile"), "nothing to do")
}
