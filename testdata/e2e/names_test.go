package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Two services use one image, each under its own name. The image travels once and
// gets both names, and both are as before when a release fails.
func TestOneImageUnderTwoNames(t *testing.T) {
	d := device(t)
	w := watch(t, d)
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
	one, two, bad := web(t, "1", ""), web(t, "2", ""), web(t, "3", "crash")
	also := func(option, name string) []string { return []string{option, option + "=" + name} }

	file := generate(t, d, "shop", "shop-1", "1", manifest("shop/web:1", "shop/worker:1"), also(archive(t, one), "shop/worker:1")...)
	mender(t, d, "install", file)
	says(t, w, "web 1")
	mender(t, d, "commit")
	require.NotEmpty(t, id("shop/web:1"))
	require.Equal(t, id("shop/web:1"), id("shop/worker:1"))
	require.Equal(t, "shop/worker:1", d.MustState(t).Service("shop", "worker").Ref)

	// The next release is a delta; its worker stays at the old image.
	file = generate(t, d, "shop", "shop-2", "2", manifest("shop/web:2", "shop/worker:1"), "--deep-delta",
		delta(t, one, two), delta(t, one, one)+"=shop/worker:1")
	mender(t, d, "install", file)
	says(t, w, "web 2")
	mender(t, d, "commit")
	require.NotEqual(t, id("shop/web:2"), id("shop/worker:1"))
	before := d.MustState(t)

	// A delta under two names that fails.
	file = generate(t, d, "shop", "shop-3", "3", manifest("shop/web:3", "shop/worker:3"), append(
		also(archive(t, bad), "shop/worker:3"), "--deep-delta")...)
	menderFails(t, d, "install", file)
	says(t, w, "web 2")
	after := d.MustState(t)
	require.Equal(t, before.Images, after.Images)
	require.Equal(t, before.Service("shop", "worker").Image, after.Service("shop", "worker").Image)
	d.MustProvide(t, provides("2"))

	// What the shell reference loads has both names.
	full := generate(t, d, "shop", "shop-4", "4", manifest("shop/web:4", "shop/worker:4"), also(archive(t, web(t, "4", "")), "shop/worker:4")...)
	mender(t, d, "install", full)
	mender(t, d, "commit")
	require.Equal(t, id("shop/web:4"), id("shop/worker:4"))
	require.Empty(t, id("shop/web:1"), "it went with the release, although the kept one has the image")
	require.NotEmpty(t, id("shop/worker:1"))
}

// Two applications ship different images under one name. The one that fails
// gives the name back.
func TestTwoImagesOfOneName(t *testing.T) {
	d := device(t)
	w := watch(t, d)
	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	named := func() string {
		return d.MustRun(t, "docker", "image", "inspect", "--format", "{{.Id}}", "shop/stock:1")
	}
	stocks := named()
	before := d.MustState(t)
	depot := func(version, mode string) string {
		image := build(t, bed.Shop{Ref: "shop/stock:1", Version: "depot-" + version, Mode: mode, Service: "depot", Base: 512})
		return generate(t, d, "depot", "depot-"+version, version, `services:
  web:
    image: shop/stock:1
    stop_grace_period: 2s
`, archive(t, image))
	}
	menderFails(t, d, "install", depot("1", "crash"))
	require.Equal(t, stocks, named(), "after a first release that failed")
	mender(t, d, "install", depot("2", ""))
	require.NotEqual(t, stocks, named())
	mender(t, d, "rollback")
	require.Equal(t, stocks, named(), "after a rollback")
	after := d.MustState(t)
	require.Equal(t, before.Containers, after.Containers)
	require.Equal(t, before.Images, after.Images)
	says(t, w, "web 1")
	d.MustRun(t, "mender-app", "verify", "shop")
}
