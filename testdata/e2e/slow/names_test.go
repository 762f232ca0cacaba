package slow

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// Two services use one image, each under its own name. The image travels once and
// gets both names, and both are as before when a release fails.
func TestOneImageUnderTwoNames(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	manifest := func(web, worker string) string {
		return `services:
  web:
    image: ` + web + `
    ports: ["8080:8080"]
    stop_grace_period: 2s
  worker:
    image: ` + worker + `
    stop_grace_period: 2s
`
	}
	id := func(ref string) string {
		t.Helper()
		for id, tags := range d.MustState(t).Images {
			if slices.Contains(strings.Fields(tags), ref) {
				return id
			}
		}
		return ""
	}
	one, two, bad := e2e.Web(t, "1", ""), e2e.Web(t, "2", ""), e2e.Web(t, "3", "crash")
	also := func(option, name string) []string { return []string{option, option + "=" + name} }

	file := e2e.Generate(t, d, "shop", "shop-1", "1", manifest("shop/web:1", "shop/worker:1"), also(e2e.Archive(t, one), "shop/worker:1")...)
	e2e.Mender(t, d, "install", file)
	e2e.Says(t, w, "web 1")
	e2e.Mender(t, d, "commit")
	require.NotEmpty(t, id("shop/web:1"))
	require.Equal(t, id("shop/web:1"), id("shop/worker:1"))
	require.Equal(t, "shop/worker:1", d.MustState(t).Service("shop", "worker").Ref)

	// The next release is a delta; its worker stays at the old image.
	file = e2e.Generate(t, d, "shop", "shop-2", "2", manifest("shop/web:2", "shop/worker:1"), "--deep-delta",
		e2e.Delta(t, one, two), e2e.Delta(t, one, one)+"=shop/worker:1")
	e2e.Mender(t, d, "install", file)
	e2e.Says(t, w, "web 2")
	e2e.Mender(t, d, "commit")
	require.NotEqual(t, id("shop/web:2"), id("shop/worker:1"))
	before := d.MustState(t)

	// A delta under two names that fails.
	file = e2e.Generate(t, d, "shop", "shop-3", "3", manifest("shop/web:3", "shop/worker:3"), append(
		also(e2e.Archive(t, bad), "shop/worker:3"), "--deep-delta")...)
	e2e.MenderFails(t, d, "install", file)
	e2e.Says(t, w, "web 2")
	after := d.MustState(t)
	require.Equal(t, before.Images, after.Images)
	require.Equal(t, before.Service("shop", "worker").Image, after.Service("shop", "worker").Image)
	d.MustProvide(t, e2e.Provides("2"))

	// What the shell reference loads has both names.
	full := e2e.Generate(t, d, "shop", "shop-4", "4", manifest("shop/web:4", "shop/worker:4"), also(e2e.Archive(t, e2e.Web(t, "4", "")), "shop/worker:4")...)
	e2e.Mender(t, d, "install", full)
	e2e.Mender(t, d, "commit")
	require.Equal(t, id("shop/web:4"), id("shop/worker:4"))
	require.Empty(t, id("shop/web:1"), "it went with the release, although the kept one has the image")
	require.NotEmpty(t, id("shop/worker:1"))
}

// Two applications ship different images under one name. The one that fails
// gives the name back.
func TestTwoImagesOfOneName(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	named := func() string {
		return d.MustRun(t, "docker", "image", "inspect", "--format", "{{.Id}}", "shop/stock:1")
	}
	stocks := named()
	before := d.MustState(t)
	depot := func(version, mode string) string {
		image := e2e.Build(t, bed.Shop{Ref: "shop/stock:1", Version: "depot-" + version, Mode: mode, Service: "depot", Base: 512})
		return e2e.Generate(t, d, "depot", "depot-"+version, version, `services:
  web:
    image: shop/stock:1
    stop_grace_period: 2s
`, e2e.Archive(t, image))
	}
	e2e.MenderFails(t, d, "install", depot("1", "crash"))
	require.Equal(t, stocks, named(), "after a first release that failed")
	e2e.Mender(t, d, "install", depot("2", ""))
	require.NotEqual(t, stocks, named())
	e2e.Mender(t, d, "rollback")
	require.Equal(t, stocks, named(), "after a rollback")
	after := d.MustState(t)
	require.Equal(t, before.Containers, after.Containers)
	require.Equal(t, before.Images, after.Images)
	e2e.Says(t, w, "web 1")
	d.MustRun(t, "mender-app", "verify", "shop")
}
