package daily

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// An operator aborts an update: while the Mender client has a release started or loaded,
// while it waits for its commit without a client, and where mender-app is the client. The
// old release runs afterwards, and the client knows.
func TestAbort(t *testing.T) {
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			aborted(t, d)
		})
	}
}

func aborted(t *testing.T, d *bed.Device) {
	t.Helper()
	w := e2e.Watch(t, d)
	one, two := e2e.LastingRelease(t, d, "1"), e2e.LastingRelease(t, d, "2")
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, w, "1")
	aborts := func(code int, said string, options ...string) {
		t.Helper()
		r, err := d.Run("mender-app", append([]string{"abort", "shop"}, options...)...)
		require.NoError(t, err)
		require.Equal(t, code, r.Code, r.Output())
		require.Contains(t, r.Output(), said)
	}
	aborts(4, "no update is open")

	for _, point := range []string{"Download/call.LOAD", "ArtifactInstall/call.ROLLOUT"} {
		code, said := e2e.During(t, d, point, func() { aborts(75, "ends at its next step", "--wait", "1s") }, "install", two)
		require.NotZero(t, code, said)
		require.Contains(t, said, "aborted by an operator", point)
		e2e.Settled(t, d, w, "1")
	}

	e2e.Mender(t, d, "install", two)
	aborts(9, "rollback` ends it")
	e2e.Says(t, w, "web 2")
	e2e.Mender(t, d, "rollback")
	e2e.Settled(t, d, w, "1")

	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", two)
	e2e.Says(t, w, "web 2")
	aborts(0, "the update of shop to shop-2 was aborted")
	e2e.Settled(t, d, w, "1")
	require.Contains(t, d.MustRun(t, "mender-app", "history", "shop"), "aborted by an operator")
}
