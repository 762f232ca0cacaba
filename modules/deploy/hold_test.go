package deploy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/journal"
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
