package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// mender-app itself makes the calls of the C++ client:
// a release is installed and updated, a bad one is undone automatically, a good one
// is rolled back, and the kept one is restored.
func TestInstallsWithoutMenderClient(t *testing.T) {
	d := device(t)
	w := watch(t, d)
	file := map[string]string{}
	for version, mode := range map[string]string{"1": "", "2": "", "3": "crash", "4": ""} {
		file[version] = release(t, d, version, mode)
	}
	refused, err := d.Run("mender-app", "install", file["1"])
	require.NoError(t, err)
	require.Equal(t, 9, refused.Code, "this device has a Mender client\n%s", refused.Output())

	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", file["1"])
	says(t, w, "web 1")
	d.MustRun(t, "mender-app", "commit")
	visit(t, d, "1")
	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", "--commit", file["2"])
	says(t, w, "web 2")
	two := d.MustState(t)

	bad, err := d.Run("mender-app", "install", "--force", "--unsigned", file["3"])
	require.NoError(t, err)
	require.Equal(t, 6, bad.Code, bad.Output())
	require.Contains(t, bad.Output(), "the till is on fire", "the service's last words")
	says(t, w, "web 2")
	sameApplication(t, two, d.MustState(t))

	d.MustRun(t, "mender-app", "install", "--force", "--unsigned", file["4"])
	says(t, w, "web 4")
	d.MustRun(t, "mender-app", "rollback")
	says(t, w, "web 2")
	sameApplication(t, two, d.MustState(t))

	d.MustRun(t, "mender-app", "rollback", "shop")
	says(t, w, "web 1")
	visit(t, d, "2")
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
