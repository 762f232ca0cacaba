package daily

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// shipped makes an artifact of an application of one service, with a policy.
func shipped(t *testing.T, d *bed.Device, app, version, policy string, options ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "version = %q\n%s", version, policy), 0o644))
	text := fmt.Sprintf("services:\n  stock:\n    image: shop/stock:1\n    environment: [VERSION=%s]\n    stop_grace_period: 1s\n", version)
	return e2e.Generate(t, d, app, app+"-"+version, version, text, append(options, "--policy", file, e2e.Archive(t, e2e.Stock(t)))...)
}

// Each rule of a policy allows and refuses on a real engine, before anything is
// loaded: through a Mender client, which reports the version of the operating
// system, and through mender-app.
func TestPolicies(t *testing.T) {
	d := e2e.Device(t)
	// Other tests are about health: a short window is enough here.
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app-docker-compose.conf"), []byte("HEALTH_WINDOW=300ms\n"), 0o644))
	patch := d.Share("patch")
	require.NoError(t, os.WriteFile(patch, nil, 0o644))
	e2e.Mender(t, d, "install", shipped(t, d, "shop", "2.4-1", "", "--provides", "rootfs-image.version:4.2.1"))
	e2e.Mender(t, d, "commit")
	before, believed := e2e.Unchanging(d.MustState(t)), e2e.MustProvides(t, d)
	require.Equal(t, "2.4-1", believed["data-partition.shop.application_version"])

	for _, c := range []struct{ policy, says string }{
		{`upgrades = {from_versions = ['2\.5-\d+']}`, `upgrades.from_versions of shop: version 3.0-1 cannot be installed over version 2.4-1: first install a version that matches 2\.5-\d+`},
		{`orchestrator = {minimum = "99.0"}`, "orchestrator.minimum of shop: docker has version "},
		{`orchestrator = {maximum = "1.12"}`, "orchestrator.maximum of shop: docker has version "},
		{`platform = {releases = [{version = '4\.2'}]}`, "platform.releases of shop: release 4.2.1 of the operating system is not supported"},
		{`platform = {releases = [{version = '4\.2\.\d', files = ["/no/such/patch"]}]}`, "lacks a patch: install an update that brings the file /no/such/patch"},
		{`platform = {releases = [{version = '4\.2\.\d', provides = {"data-partition.shop.version" = '2'}}]}`, "data-partition.shop.version matching 2 among Mender's provides"},
		{`depends = [{name = "db"}]`, "depends of shop: db is not installed: install db first"},
	} {
		out := e2e.MenderFails(t, d, "install", shipped(t, d, "shop", "3.0-1", c.policy))
		require.Contains(t, out, "refused: ")
		require.Contains(t, strings.ReplaceAll(out, `\\`, `\`), c.says) // 3.4.0 logs in quotes
	}
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)), "nothing was loaded or touched")
	require.Equal(t, believed, e2e.MustProvides(t, d))

	e2e.Mender(t, d, "install", shipped(t, d, "shop", "3.0-1", fmt.Sprintf(`
upgrades = {from_versions = ['2\.4-\d+']}
orchestrator = {minimum = "v20.10", maximum = "99.0"}
platform = {releases = [{version = '4\.2\.\d', files = [%q], provides = {"data-partition.shop.version" = '2\.4-1'}}]}
downgrades = {allow = false}
depends = [{name = "db", action = "warn"}]`, patch)))
	e2e.Mender(t, d, "commit")
	require.Equal(t, "3.0-1", e2e.MustProvides(t, d)["data-partition.shop.application_version"])

	require.NoError(t, d.WithoutMender())
	install := func(options ...string) bed.Result {
		t.Helper()
		r, err := d.Run("mender-app", append([]string{"install", "--unsigned", "--commit"}, options...)...)
		require.NoError(t, err)
		return r
	}
	refused := func(file, says string) {
		t.Helper()
		before := e2e.Unchanging(d.MustState(t))
		r := install(file)
		require.Equal(t, 9, r.Code, r.Output())
		require.Contains(t, r.Output(), says)
		require.Equal(t, before, e2e.Unchanging(d.MustState(t)), "nothing was loaded or touched")
	}
	allowed := func(options ...string) {
		t.Helper()
		r := install(options...)
		require.Zero(t, r.Code, r.Output())
	}
	older := shipped(t, d, "shop", "2.9-1", "")
	refused(older, "downgrades.allow of shop: the installed release forbids downgrades, and version 2.9-1 is older than version 3.0-1")
	allowed("--force", older)

	board := shipped(t, d, "board", "1.0", `depends = [{name = "shop", version = '3\..*'}]`)
	refused(board, `depends of board: shop is installed in version 2.9-1: install shop in a version that matches 3\..* first`)
	d.MustRun(t, "mender-app", "rollback", "shop") // that is never refused
	allowed(board)

	refused(shipped(t, d, "shop", "4.0-1", ""), `depends of board: it needs shop in a version that matches 3\..*, and the artifact has version 4.0-1: update board first`)
	refused(shipped(t, d, "shop", "4.0-1", `depends = [{name = "board"}]`), "depends of shop: it depends on itself: shop needs board needs shop")
	allowed(shipped(t, d, "shop", "4.0-1", `dependent_parent_exceptions = [{name = "board", version = '1\.\d'}]`))

	d.MustRun(t, "docker", "stop", "--time", "0", "board-stock-1")
	refused(shipped(t, d, "board", "1.1", "managed = true"), "upgrades.from_unhealthy of board: the installed release is not healthy: see mender-app status board")
	allowed(shipped(t, d, "board", "1.1", "upgrades = {from_unhealthy = true}"))

	history := d.MustRun(t, "mender-app", "history", "shop", "--status", "refused")
	for _, rule := range []string{"shop-3.0-1", "shop-2.9-1", "shop-4.0-1"} {
		require.Contains(t, history, rule)
	}
}
