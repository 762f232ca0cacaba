package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// An operator aborts an update: while the Mender client has a release started or loaded,
// while it waits for its commit without a client, and where mender-app is the client. The
// old release runs afterwards, and the client knows.
func TestAbort(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.use(t, d)
			aborted(t, d)
		})
	}
}

func aborted(t *testing.T, d *bed.Device) {
	t.Helper()
	w := watch(t, d)
	one, two := lasting(t, d, "1"), lasting(t, d, "2")
	mender(t, d, "install", one)
	mender(t, d, "commit")
	settled(t, d, w, "1")
	aborts := func(code int, said string, options ...string) {
		t.Helper()
		r, err := d.Run("mender-app", append([]string{"abort", "shop"}, options...)...)
		require.NoError(t, err)
		require.Equal(t, code, r.Code, r.Output())
		require.Contains(t, r.Output(), said)
	}
	aborts(4, "no update is open")

	for _, point := range []string{"Download/call.LOAD", "ArtifactInstall/call.ROLLOUT"} {
		code, said := during(t, d, point, func() { aborts(75, "ends at its next step", "--wait", "1s") }, "install", two)
		require.NotZero(t, code, said)
		require.Contains(t, said, "aborted by an operator", point)
		settled(t, d, w, "1")
	}

	mender(t, d, "install", two)
	aborts(9, "rollback` ends it")
	says(t, w, "web 2")
	mender(t, d, "rollback")
	settled(t, d, w, "1")

	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", two)
	says(t, w, "web 2")
	aborts(0, "the update of shop to shop-2 was aborted")
	settled(t, d, w, "1")
	require.Contains(t, d.MustRun(t, "mender-app", "history", "shop"), "aborted by an operator")
}
