package e2e

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// killed runs the Mender client. At a point of a call of app, both are killed with
// SIGKILL (store/durable has the points' names).
func killed(t *testing.T, d *bed.Device, fault string, args ...string) {
	t.Helper()
	r, err := d.Run("env", append([]string{"MENDER_APP_FAULT=" + fault + ":kill-both", "mender", "--no-syslog"}, args...)...)
	require.NoError(t, err)
	require.NotZero(t, r.Code, "mender was not killed at %s\n%s", fault, r.Output())
	require.NotContains(t, r.Output(), "level=error")
}

// After a kill of the client and its call, a person may do something that no client
// does by itself: with the Go client 3.4.0, roll back a half-done commit. This test
// covers that, and what a kill must not touch. testdata/powercut has all other
// kills, at every point of every state.
func TestKilledInTheMiddle(t *testing.T) {
	if _, err := exec.LookPath("mender"); err != nil {
		t.Skip("the orders are those of the Go client: needs mender")
	}
	d := device(t)
	w := watch(t, d)
	files := map[string]string{}
	for _, v := range []string{"1", "2", "4"} {
		files[v] = release(t, d, v, "")
	}
	at := func(version string) {
		t.Helper()
		says(t, w, "web "+version)
		d.MustProvide(t, provides(version))
	}
	mender(t, d, "install", files["1"])
	mender(t, d, "commit")
	at("1")
	first := d.MustState(t)

	t.Run("ArtifactInstall", func(t *testing.T) {
		killed(t, d, "app ArtifactInstall/called.ROLLOUT:1", "install", files["2"])
		d.MustRun(t, "mender-app", "resume")
		at("1")
		now := d.MustState(t)
		require.Equal(t, first.Images, now.Images)
		require.Equal(t, first.Volumes, now.Volumes)
		require.Equal(t, first.Service("shop", "stock"), now.Service("shop", "stock"), "the unchanged service was touched")
	})
	t.Run("ArtifactCommit, then rollback", func(t *testing.T) {
		mender(t, d, "install", files["2"])
		killed(t, d, "app ArtifactCommit/wrote.app.json:1", "commit")
		says(t, w, "web 2")
		mender(t, d, "rollback")
		at("1")
	})
	t.Run("Cleanup", func(t *testing.T) {
		mender(t, d, "install", files["2"])
		mender(t, d, "commit")
		mender(t, d, "install", files["4"])
		killed(t, d, "app Cleanup/call.DELETE:1", "commit")
		mender(t, d, "commit")
		at("4")
		require.NotContains(t, d.MustRun(t, "mender-app", "releases", "shop"), "shop-1", "one older release is kept")
	})
	t.Run("and back", func(t *testing.T) {
		d.MustRun(t, "mender-app", "verify", "shop")
		d.MustRun(t, "mender-app", "rollback", "shop")
		says(t, w, "web 2")
		d.MustRun(t, "mender-app", "verify")
	})
}
