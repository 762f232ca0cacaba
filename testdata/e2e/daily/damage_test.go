package daily

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// catalogue is a file of the base layer that all images of the shop have.
const catalogue = "usr/share/shop/catalogue-003.txt"

// unpacked finds a file of an image layer where the engine has unpacked it. Of
// several such files it takes the one that contains text.
func unpacked(t *testing.T, d *bed.Device, name, text string) string {
	t.Helper()
	out := d.MustRun(t, "sh", "-c", `
		for f in $(find /var/lib/docker -path "*/diff/$1" -o -path "*/snapshots/*/fs/$1"); do
			case $f in */work/*) continue;; esac
			if grep -q -- "$2" "$f"; then echo "$f"; fi
		done`, "find", name, text)
	files := strings.Fields(out)
	require.NotEmpty(t, files, "%s is nowhere", name)
	return files[0]
}

// imagesWhole asserts that every byte of every image on the device is right.
func imagesWhole(t *testing.T, d *bed.Device) {
	t.Helper()
	_, err := d.ReadImages(t.Context())
	require.NoError(t, err)
}

// A layer that all images share loses the content of a file, as in a power cut.
// verify names the layer, and the repair brings it back; the applications are up
// again with their data.
func TestVerifyAndRepair(t *testing.T) {
	e2e.OnEngines(t, func(t *testing.T, d *bed.Device) {
		e2e.ShortHealthWindow(t, d)
		w := e2e.Watch(t, d)
		for _, artifact := range []string{e2e.Release(t, d, "1", "", e2e.Coded), e2e.Release(t, d, "2", "")} { // a repair takes images from the first
			e2e.Mender(t, d, "install", artifact)
			e2e.Mender(t, d, "commit")
		}
		e2e.Says(t, w, "web 2")
		require.Contains(t, d.MustRun(t, "mender-app", "verify"), "all components are whole")
		visits := d.MustState(t).Volumes

		file := unpacked(t, d, catalogue, "")
		d.MustRun(t, "truncate", "--size=0", file)
		r, err := d.Run("mender-app", "verify", "shop")
		require.NoError(t, err)
		require.Equal(t, 5, r.Code, r.Output())
		require.Contains(t, r.Stdout, "shop 2-shop-2: shop/web:2: layer sha256:")
		require.Contains(t, r.Stdout, catalogue+" has 0 bytes, not 655")
		require.Equal(t, 3, strings.Count(r.Stdout, catalogue), "two versions of web, and stock")

		before := d.MustState(t)
		r, err = d.Run("mender-app", "verify", "--repair", "shop")
		require.NoError(t, err)
		if strings.Contains(file, "/snapshots/") {
			// containerd has the layer as a blob, too.
			require.Zero(t, r.Code, r.Output())
		} else {
			require.Equal(t, 5, r.Code, r.Output())
			require.Contains(t, r.Stderr, "nothing was changed")
			e2e.SameApplication(t, before, d.MustState(t))
			// The artifact of the previous release is enough: it contains the layer.
			d.MustRun(t, "mender-app", "verify", "--repair", "--from", d.Share("shop-1.mender"), "shop")
		}
		require.Contains(t, d.MustRun(t, "mender-app", "verify"), "all components are whole")
		imagesWhole(t, d)
		e2e.Says(t, w, "web 2")
		require.Equal(t, len(visits), len(d.MustState(t).Volumes))
		d.MustProvide(t, e2e.Provides("2"))
		d.MustRun(t, "mender-app", "rollback", "shop")
		e2e.Says(t, w, "web 1")
		imagesWhole(t, d)
	})
}

// The machine loses power after a download has given the engine its layers and
// before it has an image. The layers stay, with empty files, and the engine takes
// them for present. The next download does not.
func TestHollowLayersOfAnInterruptedDownload(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	next := e2e.Release(t, d, "2", "")
	r, err := d.Run("env", "MENDER_APP_FAULT=app Download/called.LOAD:1:kill-both", "mender", "--no-syslog", "install", next)
	require.NoError(t, err)
	require.NotZero(t, r.Code)
	id := strings.TrimSpace(d.MustRun(t, "docker", "image", "ls", "--no-trunc", "--quiet", "mender-app.local/shop"))
	ids := strings.Split(id, "\n")
	// Layers that belong to no container are those of the incoming image.
	used := d.MustRun(t, "sh", "-c", "docker inspect -f '{{.Image}}' $(docker ps -aq)")
	incoming := ""
	for _, id := range ids {
		if !strings.Contains(used, id) {
			incoming = strings.TrimPrefix(id, "sha256:")
		}
	}
	require.NotEmpty(t, incoming)
	file := unpacked(t, d, "bin/shop", "")
	for _, f := range strings.Fields(d.MustRun(t, "sh", "-c", "find /var/lib/docker/overlay2 -path '*/diff/bin/shop'")) {
		if text, err := os.ReadFile(d.Path(f)); err == nil && strings.Contains(string(text), "winter") {
			file = f
		}
	}
	require.NoError(t, d.StopEngine())
	for _, dir := range []string{"content", "metadata"} {
		d.MustRun(t, "rm", "-rf", filepath.Join("/var/lib/docker/image/overlay2/imagedb", dir, "sha256", incoming))
	}
	d.MustRun(t, "truncate", "--size=0", file)
	boot := d.Share("boot_id")
	require.NoError(t, os.WriteFile(boot, []byte("00000000-0000-4000-8000-000000000001\n"), 0o644))
	d.MustRun(t, "mount", "--bind", boot, "/proc/sys/kernel/random/boot_id")
	require.NoError(t, d.StartEngine())

	d.MustRun(t, "mender-app", "resume") // as the boot unit does
	require.FileExists(t, d.Path(file), "the engine keeps it")
	e2e.Mender(t, d, "install", next)
	e2e.Says(t, w, "web 2")
	e2e.Mender(t, d, "commit")
	d.MustRun(t, "mender-app", "verify")
	imagesWhole(t, d)
	d.MustProvide(t, e2e.Provides("2"))
}
