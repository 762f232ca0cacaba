package faults

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// After a kill of the client and its call, a person may do something that no client
// does by itself: with the Go client 3.4.0, roll back a half-done commit. This test
// covers that, and what a kill must not touch. testdata/powercut has all other
// kills, at every point of every state.
func TestKilledInTheMiddle(t *testing.T) {
	if _, err := exec.LookPath("mender"); err != nil {
		t.Skip("the orders are those of the Go client: needs mender")
	}
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	files := map[string]string{}
	for _, v := range []string{"1", "2", "4"} {
		files[v] = e2e.Release(t, d, v, "")
	}
	at := func(version string) {
		t.Helper()
		e2e.Says(t, w, "web "+version)
		d.MustProvide(t, e2e.Provides(version))
	}
	e2e.Mender(t, d, "install", files["1"])
	e2e.Mender(t, d, "commit")
	at("1")
	first := d.MustState(t)

	t.Run("ArtifactInstall", func(t *testing.T) {
		e2e.Killed(t, d, "app ArtifactInstall/called.ROLLOUT:1", "install", files["2"])
		d.MustRun(t, "mender-app", "resume")
		at("1")
		now := d.MustState(t)
		require.Equal(t, first.Images, now.Images)
		require.Equal(t, first.Volumes, now.Volumes)
		require.Equal(t, first.Service("shop", "stock"), now.Service("shop", "stock"), "the unchanged service was touched")
	})
	t.Run("ArtifactCommit, then rollback", func(t *testing.T) {
		e2e.Mender(t, d, "install", files["2"])
		e2e.Killed(t, d, "app ArtifactCommit/wrote.app.json:1", "commit")
		e2e.Says(t, w, "web 2")
		e2e.Mender(t, d, "rollback")
		at("1")
	})
	t.Run("Cleanup", func(t *testing.T) {
		e2e.Mender(t, d, "install", files["2"])
		e2e.Mender(t, d, "commit")
		e2e.Mender(t, d, "install", files["4"])
		e2e.Killed(t, d, "app Cleanup/call.DELETE:1", "commit")
		e2e.Mender(t, d, "commit")
		at("4")
		require.NotContains(t, d.MustRun(t, "mender-app", "releases", "shop"), "shop-1", "one older release is kept")
	})
	t.Run("and back", func(t *testing.T) {
		d.MustRun(t, "mender-app", "verify", "shop")
		d.MustRun(t, "mender-app", "rollback", "shop")
		e2e.Says(t, w, "web 2")
		d.MustRun(t, "mender-app", "verify")
	})
}
