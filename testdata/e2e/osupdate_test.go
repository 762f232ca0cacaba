package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// clients are the Mender clients that update a device.
var clients = []struct {
	name string
	use  func(*testing.T, *bed.Device)
}{
	{"the client in Go", func(*testing.T, *bed.Device) {}},
	{"the client in C++", func(t *testing.T, d *bed.Device) { d.UseCppMender(t) }},
}

// An update of the operating system clears rootfs-image.*, as mender-artifact
// writes it. The applications lie on the data partition and are still there, so a
// delta installs afterwards.
func TestDeltaAfterAnOSUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.use(t, d)
			one, two, three := web(t, "1", ""), web(t, "2", ""), web(t, "3", "")

			// The first release came under the key of the shell generator.
			mender(t, d, "install", release(t, d, "1", "", "--software-filesystem", "rootfs-image"))
			mender(t, d, "commit")
			require.Equal(t, "1", mustProvides(t, d)["rootfs-image.shop.version"])
			mender(t, d, "install", update(t, d, "2", d.Share("shop-1.mender"), one, two))
			mender(t, d, "commit")
			d.MustProvide(t, provides("2"))

			mender(t, d, "install", osUpdate(t, d))
			mender(t, d, "commit")
			d.MustProvide(t, map[string]string{
				"artifact_name": "os-2", "rootfs-image.version": "os-2", "data-partition.shop.version": "2",
			})

			mender(t, d, "install", update(t, d, "3", d.Share("shop-2.mender"), two, three))
			mender(t, d, "commit")
			p := provides("3")
			p["rootfs-image.version"] = "os-2"
			d.MustProvide(t, p)
			d.MustRun(t, "mender-app", "verify", "shop")
		})
	}
}

// The engine's data or the store, or both, lie on the root file system, which an update of
// the operating system replaces. Without the engine's data deltas are refused, and whole
// images install. Under the key rootfs-image the Mender client knows that the application
// is gone; under the default key the module finds it out.
func TestStoreGoesWithTheOS(t *testing.T) {
	d := device(t)
	d.MustRun(t, "bash", "-ec", `echo persistent_store=/var/lib/applications >>/etc/mender/mender-app.conf`)
	w := watch(t, d)
	one, two := web(t, "1", ""), web(t, "2", "")
	for _, c := range []struct{ filesystem, gone, after, refusal string }{
		{"rootfs-image", "/var/lib/applications /var/lib/docker/*", "", "rootfs-image.shop.version"},
		{"data-partition", "/var/lib/applications /var/lib/docker/*", "1", "the delta needs an image that this device does not have"},
		{"data-partition", "/var/lib/docker/*", "1", "the delta needs an image that this device does not have"},
		{"data-partition", "/var/lib/applications", "1", ""},
	} {
		t.Logf("%s is gone, the version is in %s", c.gone, c.filesystem)
		key := []string{"--software-filesystem", c.filesystem}
		mender(t, d, "install", release(t, d, "1", "", key...))
		mender(t, d, "commit")
		says(t, w, "web 1")

		mender(t, d, "install", osUpdate(t, d))
		require.NoError(t, d.StopEngine())
		d.MustRun(t, "bash", "-ec", "rm -rf "+c.gone)
		require.NoError(t, d.StartEngine())
		mender(t, d, "commit")
		require.Equal(t, c.after, mustProvides(t, d)[c.filesystem+".shop.version"])

		next := update(t, d, "2", d.Share("shop-1.mender"), one, two, key...)
		if c.refusal != "" {
			before := unchanging(d.MustState(t))
			require.Contains(t, menderFails(t, d, "install", next), c.refusal)
			require.Equal(t, before, unchanging(d.MustState(t)))
			next = release(t, d, "2", "", key...)
		}
		mender(t, d, "install", next)
		mender(t, d, "commit")
		says(t, w, "web 2")
		r, err := d.Run("mender-app", "verify", "shop")
		require.NoError(t, err)
		if strings.HasPrefix(c.gone, "/var/lib/docker") { // the store still has release 1
			require.Contains(t, r.Output(), "-shop-1: shop/web:1: image with config")
			require.NotContains(t, r.Output(), "shop/web:2")
		} else {
			require.Zero(t, r.Code, r.Output())
		}
	}
}

// update makes a release of the shop whose web service is a delta over old, which
// is in the older artifact.
func update(t *testing.T, d *bed.Device, version, older string, old, new bed.Image, options ...string) string {
	t.Helper()
	from, to := filepath.Join(t.TempDir(), "old.tar"), filepath.Join(t.TempDir(), "new.tar")
	require.NoError(t, bed.WriteArchive(from, old))
	require.NoError(t, bed.WriteArchive(to, new))
	return generate(t, d, "shop", "shop-"+version, version, compose(version), append(options, "--base", older,
		"--content", "docker-archive:"+from, "--image", "docker-archive:"+to, archive(t, stock(t)))...)
}

// osUpdate makes an artifact with the provides of a default operating-system image,
// for an update module that does nothing.
func osUpdate(t *testing.T, d *bed.Device) string {
	t.Helper()
	d.MustRun(t, "bash", "-ec", `cd /usr/share/mender/modules/v3
printf '#!/bin/sh\n[ $1 != SupportsRollback ] || echo Yes\n' >os
chmod 755 os`)
	file := d.Share("os-2.mender")
	content := filepath.Join(t.TempDir(), "os")
	require.NoError(t, os.WriteFile(content, []byte("2"), 0o644))
	text, err := exec.Command("mender-artifact", "write", "module-image", "-T", "os", "-t", bed.Type, "-n", "os-2", "-o", file, "-f", content,
		"--no-default-software-version", "--no-default-clears-provides",
		"--provides", "rootfs-image.version:os-2", "--clears-provides", "rootfs-image.*", "--clears-provides", "artifact_group").CombinedOutput()
	require.NoError(t, err, "%s", text)
	return file
}
