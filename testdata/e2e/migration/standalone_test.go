package migration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// mender-app itself makes the calls of the C++ client:
// a release is installed and updated, a bad one is undone automatically, a good one
// is rolled back, and the kept one is restored.
func TestInstallsWithoutMenderClient(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	file := map[string]string{}
	for version, mode := range map[string]string{"1": "", "2": "", "3": "crash", "4": ""} {
		file[version] = e2e.Release(t, d, version, mode)
	}
	refused, err := d.Run("mender-app", "install", file["1"])
	require.NoError(t, err)
	require.Equal(t, 9, refused.Code, "this device has a Mender client\n%s", refused.Output())

	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", file["1"])
	e2e.Says(t, w, "web 1")
	d.MustRun(t, "mender-app", "commit")
	e2e.Visit(t, d, "1")
	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", "--commit", file["2"])
	e2e.Says(t, w, "web 2")
	two := d.MustState(t)

	bad, err := d.Run("mender-app", "install", "--force", "--unsigned", file["3"])
	require.NoError(t, err)
	require.Equal(t, 6, bad.Code, bad.Output())
	require.Contains(t, bad.Output(), "the till is on fire", "the service's last words")
	e2e.Says(t, w, "web 2")
	e2e.SameApplication(t, two, d.MustState(t))

	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", file["4"])
	e2e.Says(t, w, "web 4")
	d.MustRun(t, "mender-app", "rollback")
	e2e.Says(t, w, "web 2")
	e2e.SameApplication(t, two, d.MustState(t))

	d.MustRun(t, "mender-app", "rollback", "shop")
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "2")
	require.Contains(t, d.MustRun(t, "mender-app", "list"), "shop-1")
	require.Contains(t, d.MustRun(t, "mender-app", "history", "shop"), "rolled-back")
	d.MustRun(t, "mender-app", "verify")

	// The Mender client calls this to tell its server.
	inventory := d.MustRun(t, "/usr/share/mender/inventory/mender-inventory-app")
	for _, line := range []string{
		`mender_app_applications=shop`, `mender_app_engine=docker-compose docker [0-9.]+.*`, `app_shop_artifact=shop-1`,
		`app_shop_state=installed`, `app_shop_last=restored shop-1 .*`, `app_shop_base=shop/web:1@sha256:[0-9a-f]{64}`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", inventory)
	}
}
