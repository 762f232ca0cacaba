package daily

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A release whose policy says apply of another application is refused while nothing that
// matches is staged; then that one is installed first, and both are committed by the Mender
// client's one commit. If the release fails, both are as before.
func TestInstalledTogether(t *testing.T) {
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			installedTogether(t, d)
		})
	}
}

func installedTogether(t *testing.T, d *bed.Device) {
	t.Helper()
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app-docker-compose.conf"), []byte("HEALTH_WINDOW=300ms\n"), 0o644))
	runs := func(app, version string) {
		t.Helper()
		require.Contains(t, d.MustRun(t, "docker", "inspect", "--format", "{{.State.Running}} {{.Config.Env}}", app+"-stock-1"), "true [VERSION="+version+" ")
	}
	for _, app := range []string{"db", "shop"} {
		e2e.Mender(t, d, "install", shipped(t, d, app, "1.0", ""))
		e2e.Mender(t, d, "commit")
	}
	const needs = `depends = [{name = "db", version = '2\..*', action = "apply"}]`
	before := e2e.Unchanging(d.MustState(t))
	next := shipped(t, d, "shop", "2.0", needs)
	const missing = "depends of shop: db is installed in version 1.0, and no matching artifact is staged"
	require.Contains(t, e2e.MenderFails(t, d, "install", next), missing)
	r, err := d.Run("mender-app", "check", "--unsigned", next)
	require.NoError(t, err)
	require.Equal(t, 9, r.Code, r.Output())
	require.Contains(t, r.Output(), missing)
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)), "nothing was loaded or touched")

	d.MustRun(t, "mender-app", "stage", "--unsigned", shipped(t, d, "db", "2.0", ""))
	require.Contains(t, d.MustRun(t, "mender-app", "check", "--unsigned", next), "installs first")
	file := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(file, []byte("version = '2.1'\n"+needs), 0o644))
	text := fmt.Sprintf("services:\n  stock:\n    image: shop/stock:1\n    environment: [VERSION=%s]\n    healthcheck: {test: [CMD, /no/such/program], interval: 300ms, retries: 1}\n", "2.1")
	e2e.MenderFails(t, d, "install", e2e.Generate(t, d, "shop", "shop-2.1", "2.1", text, "--policy", file, e2e.Archive(t, e2e.Stock(t))))
	require.Contains(t, d.MustRun(t, "mender-app", "history", "db"), "rolled-back")
	for _, app := range []string{"db", "shop"} {
		runs(app, "1.0")
	}

	e2e.Mender(t, d, "install", next)
	for _, app := range []string{"db", "shop"} {
		runs(app, "2.0")
	}
	r, err = d.Run("mender-app", "stop", "db")
	require.NoError(t, err)
	require.Equal(t, 75, r.Code, r.Output())
	require.Contains(t, r.Output(), "db-2.0 is installed and follows the update of shop")
	e2e.Mender(t, d, "commit")
	for _, app := range []string{"db", "shop"} {
		runs(app, "2.0")
	}
	require.Regexp(t, `together with +deployment \d+ of shop`, d.MustRun(t, "mender-app", "history", "db", "3"))
	require.Equal(t, "2.0", e2e.MustProvides(t, d)["data-partition.shop.application_version"])
	require.Equal(t, "1.0", e2e.MustProvides(t, d)["data-partition.db.application_version"], "the client does not learn of it")
}
