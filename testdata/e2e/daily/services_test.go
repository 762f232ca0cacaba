package daily

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// A release is shipped with a service switched off, and an operator switches services on
// and off: other services are not touched, those that depend on one do not wait for it,
// and the choice is kept over an update and a rollback, unless a policy drops it.
func TestServicesSwitchedOff(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	ship := func(version, policy string) string {
		file := filepath.Join(t.TempDir(), "app.toml")
		require.NoError(t, os.WriteFile(file, []byte(policy), 0o644))
		text := fmt.Sprintf(`services:
  stock:
    image: shop/stock:1
    environment: [VERSION=%s]
    stop_grace_period: 1s
    depends_on: [stats]
  stats:
    image: shop/stock:1
    stop_grace_period: 1s
  batch:
    image: shop/stock:1
    stop_grace_period: 1s
    deploy: {replicas: 2}
`, version)
		return e2e.Generate(t, d, "shop", "shop-"+version, version, text, "--policy", file, e2e.Archive(t, e2e.Stock(t)))
	}
	runs := func() (names []string) {
		t.Helper()
		names = strings.Fields(d.MustRun(t, "docker", "ps", "--format", "{{.Names}}"))
		slices.Sort(names)
		return names
	}
	id := func() string {
		t.Helper()
		return d.MustRun(t, "docker", "inspect", "--format", "{{.Id}}", "shop-stock-1")
	}
	own := func(args ...string) string { t.Helper(); return d.MustRun(t, "mender-app", args...) }

	const off = "services = {disabled = ['stats']}\n"
	own("install", "--unsigned", "--commit", ship("1", off))
	require.Equal(t, []string{"shop-batch-1", "shop-batch-2", "shop-stock-1"}, runs())
	stock := id()
	own("health", "shop")
	require.Regexp(t, `(?m)^switched off +stats$`, own("status", "shop"))

	own("enable", "shop", "stats")
	require.Equal(t, []string{"shop-batch-1", "shop-batch-2", "shop-stats-1", "shop-stock-1"}, runs())
	own("disable", "shop", "batch")
	require.Equal(t, []string{"shop-stats-1", "shop-stock-1"}, runs())
	require.Equal(t, stock, id(), "it was not touched")
	own("health", "shop")
	r, err := d.Run("mender-app", "disable", "shop", "nothing")
	require.NoError(t, err)
	require.Equal(t, 4, r.Code, r.Output())
	require.Contains(t, r.Output(), "shop has no service nothing: it has batch, stats, stock")

	own("install", "--unsigned", "--commit", ship("2", off))
	require.Equal(t, []string{"shop-stats-1", "shop-stock-1"}, runs())
	own("rollback", "shop")
	require.Equal(t, []string{"shop-stats-1", "shop-stock-1"}, runs())
	own("install", "--unsigned", "--commit", ship("3", off+"keep = {services = false}\n"))
	require.Equal(t, []string{"shop-batch-1", "shop-batch-2", "shop-stock-1"}, runs())
	own("health", "shop")
}
