// Package migration tests artifacts and stores of other update modules, each Mender
// client, and devices without one. make test-all and CI run it.
package migration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// latest is an image of the shop's web service that has the same tag in every
// version: only the image's identity distinguishes the versions.
func latest(t *testing.T, version, mode string) bed.Image {
	t.Helper()
	return e2e.Build(t, bed.Shop{Ref: "shop/web:latest", Version: version, Mode: mode, Base: 512, Winter: version != "1"})
}

func latestCompose() string {
	return strings.ReplaceAll(e2e.Compose("x"), "shop/web:x", "shop/web:latest")
}

// latestRelease is release with the image of latest.
func latestRelease(t *testing.T, d *bed.Device, version, mode string) string {
	t.Helper()
	return e2e.Generate(t, d, "shop", "shop-"+version, version, latestCompose(), e2e.Archive(t, latest(t, version, mode)), e2e.Archive(t, e2e.Stock(t)))
}

// This is what the shell app-update-module leaves on a device: the images are
// loaded, the composition is up as the project "manifests", and the store is as the
// module writes it.
func shellReference(t *testing.T, d *bed.Device) {
	t.Helper()
	require.NoError(t, bed.WriteArchive(d.Share("web.tar"), latest(t, "1", "")))
	require.NoError(t, bed.WriteArchive(d.Share("stock.tar"), e2e.Stock(t)))
	d.MustRun(t, "bash", "-ec", `
		docker load -q -i `+d.Share("web.tar")+`
		docker load -q -i `+d.Share("stock.tar")+`
		mkdir -p /data/mender-app/shop/manifests /data/mender-app/shop/images
		cd /data/mender-app/shop
		cat >manifests/docker-compose.yml <<'END'
`+latestCompose()+`
END
		printf 'shop/web:latest\nshop/stock:1\n' >images/urls
		cp -a ../shop ../shop-last
		docker compose --project-directory /data/mender-app/shop/manifests up -d >manifests/compose.log 2>&1`)
}

// A device that runs an application of the shell reference installs its next
// artifact. The data stays. A rollback works before and after the commit, although
// the new image takes the old one's tag.
func TestAdoptsApplicationOfTheShellReference(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	shellReference(t, d)
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "1")
	before := d.MustState(t)
	require.NotNil(t, before.Service("manifests", "web"))

	require.Contains(t, d.MustRun(t, "mender-app", "verify", "shop"), "all components are whole")

	// A bad update comes first: the reference's composition must come back.
	e2e.MenderFails(t, d, "install", latestRelease(t, d, "3", "crash"))
	e2e.Says(t, w, "web 1")
	require.Equal(t, before.Service("manifests", "stock"), d.MustState(t).Service("manifests", "stock"), "the unchanged service was touched")
	d.MustRun(t, "test", "-f", "/data/mender-app/shop/images/urls")

	e2e.Mender(t, d, "install", latestRelease(t, d, "2", ""))
	e2e.Says(t, w, "web 2")
	d.MustRun(t, "docker", "image", "prune", "-f") // what has no tag is gone then
	e2e.Mender(t, d, "rollback")
	e2e.Says(t, w, "web 1")
	d.MustRun(t, "test", "-f", "/data/mender-app/shop/manifests/docker-compose.yml")

	e2e.Mender(t, d, "install", latestRelease(t, d, "2", ""))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	e2e.Visit(t, d, "2")
	after := d.MustState(t)
	require.Equal(t, before.Service("manifests", "stock"), after.Service("manifests", "stock"), "the unchanged service was touched")
	d.MustRun(t, "bash", "-c", "! test -e /data/mender-app/shop/images && ! test -e /data/mender-app/shop-last")

	d.MustRun(t, "docker", "image", "prune", "-f")
	d.MustRun(t, "mender-app", "rollback", "shop")
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "3")
}
