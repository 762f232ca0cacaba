package migration

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The Mender client in C++ does what the client in Go does: the main job, and what
// mender-app answers to the calls that only this client makes.
func TestCppClientUpdates(t *testing.T) {
	d := e2e.Device(t)
	d.UseCppMender(t)
	e2e.InstallUpdateFailAndRollBack(t, d)

	// A delta of another release is refused before any call of the update module.
	before := e2e.Unchanging(d.MustState(t))
	said := e2e.MenderFails(t, d, "install", e2e.Generate(t, d, "shop", "shop-5", "5", e2e.Compose("5"), "--deep-delta", "--depends", "data-partition.shop.version:1",
		e2e.Delta(t, e2e.Web(t, "1", ""), e2e.Web(t, "5", "")), e2e.Delta(t, e2e.Stock(t), e2e.Stock(t))))
	require.Contains(t, said, "data-partition.shop.version")
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)))

	// What an operator changes stays over an update and its rollback.
	override := d.Share("override.yaml")
	require.NoError(t, os.WriteFile(override, []byte("services: {web: {labels: {limits: small}}}\n"), 0o644))
	d.MustRun(t, "mender-app", "overrides", "set", "shop", override)
	limits := func() {
		t.Helper()
		require.Equal(t, "small\n", d.MustRun(t, "docker", "inspect", "--format", `{{index .Config.Labels "limits"}}`, "shop-web-1"))
	}
	limits()
	e2e.Mender(t, d, "install", e2e.Release(t, d, "4", ""))
	limits()
	e2e.Mender(t, d, "rollback")
	limits()
	d.MustRun(t, "mender-app", "overrides", "clear", "shop")

	// The client refuses a second installation before the commit of the first, and
	// a rollback after it.
	r, err := d.Mender("install", e2e.Release(t, d, "6", ""))
	require.NoError(t, err)
	require.Contains(t, r.Output(), "until its commit, a rollback or the next installation goes back")
	e2e.MenderFails(t, d, "install", e2e.Release(t, d, "7", ""))
	d.MustProvide(t, e2e.Provides("2"))
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, e2e.Provides("6"))
	e2e.MenderFails(t, d, "rollback")
	d.MustProvide(t, e2e.Provides("6"))
	d.MustRun(t, "mender-app", "verify", "shop")

	// The caller of install is told that the machine must restart.
	r, err = d.Mender("install", "--reboot-exit-code", e2e.Release(t, d, "8", "", "--reboot"))
	require.NoError(t, err)
	require.Equal(t, 4, r.Code, r.Output())
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, e2e.Provides("8"))

	// The module must be a file in the directory of modules.
	d.MustRun(t, "bash", "-ec", `cd /usr/share/mender/modules/v3; mv app /usr/lib/app; ln -s /usr/lib/app app`)
	require.Contains(t, e2e.MenderFails(t, d, "install", e2e.Release(t, d, "7", "")), "Module path is outside Update Modules directory")
}
