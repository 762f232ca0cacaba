package deploy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

func (g *rig) hold(t tb, reason string) error {
	e := g.engine()
	_, err := hold.Take(g.t.Context(), e.Store, e.HoldClock(), store.Hold{Reason: reason, Seconds: 3600})
	return err
}

// TestHold: what begins is refused while updates are held, also after a restart of
// the machine, and what ends an update is not.
func TestHold(t *testing.T) {
	g := newRig(t)
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	g.now = func() time.Time { return noon }
	g.keep = 2
	c := installedRig(t, g, v1, v2)
	require.NoError(t, g.hold(t, "new kernel"))
	g.boot++
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, hold.ErrHeld)
		require.ErrorContains(t, err, "new kernel")
	}
	refused(c.install(g.newTree(t, v4)))
	require.Contains(t, g.history(t, "shop"), v4.name+" refused")
	refused(g.engine().Stop(t.Context(), "shop"))
	refused(g.engine().Start(t.Context(), "shop"))
	refused(g.engine().Purge(t.Context(), "shop", false, true))
	_, err := g.engine().GoBack(t.Context(), "shop", "")
	refused(err)
	g.runs(t, "shop", &v2)
	g.clean(t, "shop")

	// Another reason does not end it, and an hour later it is over.
	given, left, err := hold.Give(t.Context(), g.engine().Store, g.engine().HoldClock(), "another")
	require.NoError(t, err)
	require.False(t, given)
	require.Equal(t, "new kernel", left.Reason)
	noon = noon.Add(time.Hour)
	require.NoError(t, c.install(g.newTree(t, v4)))

	// An open update keeps others from holding, and is ended in spite of a hold.
	require.ErrorIs(t, g.hold(t, "new kernel"), hold.ErrHeld)
	require.NoError(t, g.engine().Store.SetHold(store.Hold{Reason: "x", Since: noon, Seconds: 3600}))
	require.NoError(t, c.rollback())
	g.runs(t, "shop", &v2)
}

// TestAppLock: an application that says "not now" is not updated, in whichever moment
// it says so, unless a person insists.
func TestAppLock(t *testing.T) {
	g := newRig(t)
	locks := t.TempDir()
	g.with = func(e *Engine) { e.AppLocks = locks }
	c := installedRig(t, g, v1)
	dir := filepath.Join(locks, "shop")
	require.NoError(t, os.Mkdir(dir, 0o755))
	lock := filepath.Join(dir, hold.LockName)

	writeFile(t, lock, "drilling\n\x1b[31m")
	err := c.install(g.newTree(t, v2))
	require.ErrorIs(t, err, hold.ErrHeld)
	require.ErrorContains(t, err, lock+"): drilling [31m: try again later")
	require.Contains(t, g.history(t, "shop"), v2.name+" refused")

	// It says so between the download and the installation.
	require.NoError(t, os.Remove(lock))
	tr := g.newTree(t, v2)
	require.NoError(t, g.call(modules.Download, tr))
	require.NoError(t, os.Symlink("/nowhere", lock))
	require.ErrorIs(t, g.call(modules.ArtifactInstall, tr), hold.ErrHeld)
	for _, s := range []modules.State{modules.ArtifactRollback, modules.ArtifactFailure, modules.Cleanup} {
		require.NoError(t, g.call(s, tr))
	}
	g.runs(t, "shop", &v1)
	g.clean(t, "shop")

	// Another application does not ask it, and a person may insist.
	other := release{app: "db", name: "db-1", images: []string{"db one"}}
	require.NoError(t, c.install(g.newTree(t, other)))
	require.NoError(t, c.commit())
	g.with = func(e *Engine) { e.AppLocks, e.Force, e.Driver = locks, true, journal.DriverPerson }
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.commit())
	g.runs(t, "shop", &v2)
}

// TestWindows: an update waits for a maintenance window, of the device and of the release,
// before it loads anything and again before it starts the new release. A person may insist,
// and a signed emergency does not wait.
func TestWindows(t *testing.T) {
	g := newRig(t)
	now := time.Date(2026, 11, 25, 3, 0, 0, 0, time.Local)
	g.now = func() time.Time { return now }
	night, err := policy.ParseWindows([]string{"02:00-04:00"})
	require.NoError(t, err)
	clock := true
	byHand := func(e *Engine) {
		e.Windows, e.ClockSet, e.Driver = night, func() bool { return clock }, journal.DriverPerson
	}
	g.with = byHand
	c := installedRig(t, g, v1)
	refused := func(err error, says string) {
		t.Helper()
		require.ErrorIs(t, err, hold.ErrHeld)
		require.ErrorContains(t, err, says)
		require.Contains(t, g.history(t, "shop"), v2.name+" refused")
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
	}
	const closed = "outside of the maintenance windows of the device, until Thu 2026-11-26 02:00"

	now = now.Add(time.Hour)
	refused(c.install(g.newTree(t, v2)), closed)
	require.ErrorContains(t, g.engine().UpdatesWait("shop"), closed)

	// Nothing else waits: not a rollback, and not what is no update.
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	require.NoError(t, g.engine().Start(t.Context(), "shop"))

	// The release has windows of its own.
	now = now.Add(-time.Hour)
	require.NoError(t, g.engine().UpdatesWait("shop"))
	refused(c.install(g.withPolicy(t, v2, "2", "[upgrades]\nwindows = ['Sat 02:00-04:00']")), "windows of the release, until Sat 2026-11-28 02:00")

	// Nobody knows what time it is.
	clock = false
	refused(c.install(g.newTree(t, v2)), "until the machine knows what time it is")
	clock = true

	// The window closes between the download and the installation. A Mender client may
	// download outside of it, where the release is loaded beside what runs.
	g.with = func(e *Engine) { byHand(e); e.Driver = "mender" }
	for _, download := range []time.Time{now, now.Add(2 * time.Hour)} {
		later := now.Add(2 * time.Hour)
		g.now = func() time.Time { return download }
		tr := g.newTree(t, v2)
		require.NoError(t, g.call(modules.Download, tr))
		g.now = func() time.Time { return later }
		require.ErrorContains(t, g.engine().UpdatesWait("shop"), closed)
		require.ErrorIs(t, g.call(modules.ArtifactInstall, tr), hold.ErrHeld)
		for _, s := range []modules.State{modules.ArtifactRollback, modules.ArtifactFailure, modules.Cleanup} {
			require.NoError(t, g.call(s, tr))
		}
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
	}

	// An emergency must be signed by a key of the device. It is installed and rolled back at
	// any time.
	g.with = byHand
	refused(c.install(g.withPolicy(t, v2, "2", "[upgrades]\nemergency = true")), closed)
	m := v2.meta()
	m.ApplicationVersion, m.Policy = "2", []byte(`{"upgrades":{"emergency":true}}`)
	m.Requires = append(m.Requires, artifact.FeaturePolicy)
	v2.sign(t, m, m)
	refused(c.install(g.withMeta(t, v2, m)), closed)
	verified := false
	g.with = func(e *Engine) {
		byHand(e)
		e.Verified = func(app string, st *statement.Signed) bool { return verified && app == "shop" && st != nil }
	}
	refused(c.install(g.withMeta(t, v2, m)), closed)
	verified = true
	require.NoError(t, c.install(g.withMeta(t, v2, m)))
	require.NoError(t, c.rollback())
	g.runs(t, "shop", &v1)

	// A person insists.
	g.with = func(e *Engine) { byHand(e); e.Force = true }
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.commit())
	g.runs(t, "shop", &v2)
}
