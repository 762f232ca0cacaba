package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A delta is staged, listed and, when its file is gone and without a network, installed.
// A damaged file is not staged, and nothing of the device changes. What its policy says
// of the engine counts for another version of the engine.
func TestStaged(t *testing.T) {
	d := device(t)
	require.NoError(t, d.WithoutMender())
	w := watch(t, d)
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", release(t, d, "1", ""))
	says(t, w, "web 1")
	at1 := d.MustState(t)

	d.MustRun(t, "mender-app", "engine-check", "99.1")
	bounds := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(bounds, []byte("orchestrator = {minimum = '20.10', maximum = '98.2'}\n"), 0o644))
	file := generate(t, d, "shop", "shop-2", "2", compose("2"), "--policy", bounds, delta(t, web(t, "1", ""), web(t, "2", "")), archive(t, stock(t)))
	d.MustRun(t, "mender-app", "stage", "--unsigned", file)
	require.NoError(t, os.Remove(file))
	require.Equal(t, unchanging(at1), unchanging(d.MustState(t)), "nothing was loaded")
	require.Regexp(t, `(?m)^shop +\S+ +shop-2 .* yes +[0-9a-f]{12}$`, d.MustRun(t, "mender-app", "staged"))

	damaged := release(t, d, "3", "")
	d.MustRun(t, "truncate", "--size=-5000", damaged)
	r, err := d.Run("mender-app", "stage", "--unsigned", damaged)
	require.NoError(t, err)
	require.Equal(t, 5, r.Code, r.Output())
	require.NotContains(t, d.MustRun(t, "mender-app", "staged"), "shop-3")

	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", "--staged", "shop")
	says(t, w, "web 2")
	require.Equal(t, "shop-2", current(t, d))
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
	d := device(t)
	require.NoError(t, d.WithoutMender())
	w := watch(t, d)
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", release(t, d, "1", ""))
	says(t, w, "web 1")
	own := func(version string) bool {
		image, err := web(t, version, "").Build()
		require.NoError(t, err)
		config, err := image.ConfigName()
		require.NoError(t, err)
		return strings.Contains(d.MustRun(t, "docker", "images", "--format", "{{.Repository}}:{{.Tag}}"), "mender-app.local/shop:"+config.Hex)
	}
	file := generate(t, d, "shop", "shop-2", "2", compose("2"), delta(t, web(t, "1", ""), web(t, "2", "")), archive(t, stock(t)))
	d.MustRun(t, "mender-app", "stage", "--load", "--unsigned", file)
	require.NoError(t, os.Remove(file))
	says(t, w, "web 1")
	require.True(t, own("2"))
	require.Regexp(t, `(?m)^shop +\S+ +shop-2 +.* loaded .* yes +[0-9a-f]{12}$`, d.MustRun(t, "mender-app", "staged"))

	// Two updates remove the base of the delta, and neither takes what is loaded.
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", release(t, d, "3", ""))
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", release(t, d, "4", ""))
	require.True(t, own("2"))
	d.MustRun(t, "mender-app", "resume")
	require.True(t, own("2"))

	before := d.MustRun(t, "docker", "images", "--no-trunc", "--quiet")
	said := d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", "--staged", "shop")
	says(t, w, "web 2")
	require.Equal(t, "shop-2", current(t, d))
	for id := range strings.Lines(d.MustRun(t, "docker", "images", "--no-trunc", "--quiet")) {
		require.Contains(t, before, id, said)
	}
	d.MustRun(t, "mender-app", "verify", "shop")

	file = release(t, d, "5", "")
	d.MustRun(t, "mender-app", "stage", "--load", "--unsigned", file)
	require.True(t, own("5"))
	d.MustRun(t, "mender-app", "unstage", "shop-5")
	require.False(t, own("5"))
	d.MustRun(t, "mender-app", "unstage", "shop-2")
	require.True(t, own("2"), "it is installed")
	says(t, w, "web 2")
}
