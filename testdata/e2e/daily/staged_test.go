package daily

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// A delta is staged, listed and, when its file is gone and without a network, installed.
// A damaged file is not staged, and nothing of the device changes. What its policy says
// of the engine counts for another version of the engine.
func TestStaged(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	w := e2e.Watch(t, d)
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", e2e.Release(t, d, "1", ""))
	e2e.Says(t, w, "web 1")
	at1 := d.MustState(t)

	d.MustRun(t, "mender-app", "engine-check", "99.1")
	bounds := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(bounds, []byte("orchestrator = {minimum = '20.10', maximum = '98.2'}\n"), 0o644))
	file := e2e.Generate(t, d, "shop", "shop-2", "2", e2e.Compose("2"), "--policy", bounds, e2e.Delta(t, e2e.Web(t, "1", ""), e2e.Web(t, "2", "")), e2e.Archive(t, e2e.Stock(t)))
	d.MustRun(t, "mender-app", "stage", "--unsigned", file)
	require.NoError(t, os.Remove(file))
	require.Equal(t, e2e.Unchanging(at1), e2e.Unchanging(d.MustState(t)), "nothing was loaded")
	require.Regexp(t, `(?m)^shop +\S+ +shop-2 .* yes +[0-9a-f]{12}$`, d.MustRun(t, "mender-app", "staged"))

	damaged := e2e.Release(t, d, "3", "")
	d.MustRun(t, "truncate", "--size=-5000", damaged)
	r, err := d.Run("mender-app", "stage", "--unsigned", damaged)
	require.NoError(t, err)
	require.Equal(t, 5, r.Code, r.Output())
	require.NotContains(t, d.MustRun(t, "mender-app", "staged"), "shop-3")

	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", "--staged", "shop")
	e2e.Says(t, w, "web 2")
	require.Equal(t, "shop-2", e2e.CurrentRelease(t, d))
	d.MustRun(t, "mender-app", "verify", "shop")
	d.MustRun(t, "mender-app", "unstage", "shop-2")

	// Its policy is asked before the engine gets another version.
	d.MustRun(t, "mender-app", "engine-check", "98.2.7")
	r, err = d.Run("mender-app", "engine-check", "99.1")
	require.NoError(t, err)
	require.Equal(t, 9, r.Code, r.Output())
	require.Contains(t, r.Output(), "it needs 98.2 or earlier (orchestrator.maximum)")
}

// A delta is staged and loaded beside what runs. Its images stay whatever is installed and
// purged meanwhile, and the release is installed with the images' source and the delta's
// base gone: no image is loaded again. What is unstaged leaves nothing in the engine.
func TestStagedLoaded(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	w := e2e.Watch(t, d)
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", e2e.Release(t, d, "1", ""))
	e2e.Says(t, w, "web 1")
	own := func(version string) bool {
		image, err := e2e.Web(t, version, "").Build()
		require.NoError(t, err)
		config, err := image.ConfigName()
		require.NoError(t, err)
		return strings.Contains(d.MustRun(t, "docker", "images", "--format", "{{.Repository}}:{{.Tag}}"), "mender-app.local/shop:"+config.Hex)
	}
	file := e2e.Generate(t, d, "shop", "shop-2", "2", e2e.Compose("2"), e2e.Delta(t, e2e.Web(t, "1", ""), e2e.Web(t, "2", "")), e2e.Archive(t, e2e.Stock(t)))
	d.MustRun(t, "mender-app", "stage", "--load", "--unsigned", file)
	require.NoError(t, os.Remove(file))
	e2e.Says(t, w, "web 1")
	require.True(t, own("2"))
	require.Regexp(t, `(?m)^shop +\S+ +shop-2 +.* loaded .* yes +[0-9a-f]{12}$`, d.MustRun(t, "mender-app", "staged"))

	// Two updates remove the base of the delta, and neither takes what is loaded.
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", e2e.Release(t, d, "3", ""))
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", e2e.Release(t, d, "4", ""))
	require.True(t, own("2"))
	d.MustRun(t, "mender-app", "resume")
	require.True(t, own("2"))

	before := d.MustRun(t, "docker", "images", "--no-trunc", "--quiet")
	said := d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", "--staged", "shop")
	e2e.Says(t, w, "web 2")
	require.Equal(t, "shop-2", e2e.CurrentRelease(t, d))
	for id := range strings.Lines(d.MustRun(t, "docker", "images", "--no-trunc", "--quiet")) {
		require.Contains(t, before, id, said)
	}
	d.MustRun(t, "mender-app", "verify", "shop")

	file = e2e.Release(t, d, "5", "")
	d.MustRun(t, "mender-app", "stage", "--load", "--unsigned", file)
	require.True(t, own("5"))
	d.MustRun(t, "mender-app", "unstage", "shop-5")
	require.False(t, own("5"))
	d.MustRun(t, "mender-app", "unstage", "shop-2")
	require.True(t, own("2"), "it is installed")
	e2e.Says(t, w, "web 2")
}

// Beside a Mender client, what is staged and checked is compared with what that client has
// recorded, and a rollback by hand says how both agree again.
func TestStagedBesideTheClient(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			w := e2e.Watch(t, d)
			first := e2e.Release(t, d, "1", "")
			e2e.Mender(t, d, "install", first)
			e2e.Mender(t, d, "commit")
			over1 := e2e.ReleaseOver(t, d, "3", first, e2e.Web(t, "1", ""), e2e.Web(t, "3", ""))
			require.Regexp(t, `(?m)^device +pass`, d.MustRun(t, "mender-app", "check", over1))
			d.MustRun(t, "mender-app", "stage", "--load", "--unsigned", over1)
			require.Regexp(t, `(?m)^shop .*shop-3 .* yes +[0-9a-f]{12}$`, d.MustRun(t, "mender-app", "staged"))
			require.Regexp(t, `(?m)^device +pass`, d.MustRun(t, "mender-app", "check", "--unsigned", "--staged", "shop"))
			d.MustRun(t, "mender-app", "install", "--unsigned", "--force", "--commit", "--staged", "shop")
			e2e.Says(t, w, "web 3")

			e2e.Mender(t, d, "install", e2e.Release(t, d, "2", ""))
			e2e.Mender(t, d, "commit")
			said := d.MustRun(t, "mender-app", "rollback", "shop")
			require.Regexp(t, `mender-app rollback shop 3-shop-2 goes forward again`, said)
			r, err := d.Run("mender-app", "check", over1)
			require.NoError(t, err)
			require.Equal(t, 9, r.Code, r.Output())
			e2e.MenderFails(t, d, "install", over1)
			d.MustRun(t, "mender-app", "rollback", "shop", "3")
			d.MustProvide(t, e2e.Provides("2"))
		})
	}
}
