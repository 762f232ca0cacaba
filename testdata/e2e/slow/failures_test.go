package slow

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// These are the known failures of the shell app-update-module and of its successor.
// Each subtest is named after a failure and tests what happens here instead.
func TestWhatFailedBefore(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	one := e2e.Release(t, d, "1", "")
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, w, "1")
	before := d.MustState(t)
	crash, sick, two := e2e.Release(t, d, "3", "crash"), e2e.Release(t, d, "4", "unhealthy"), e2e.Release(t, d, "2", "")
	reference := func(t *testing.T, change func(*bed.Handmade)) string {
		t.Helper()
		h, err := bed.Reference("shop", "shop-5", e2e.Compose("2"), e2e.Web(t, "2", ""), e2e.Stock(t))
		require.NoError(t, err)
		change(&h)
		return e2e.Handmade(t, d, h)
	}
	// inOne asserts that release 1 runs and that the client reports it.
	inOne := func(t *testing.T) {
		t.Helper()
		e2e.Settled(t, d, w, "1")
		e2e.SameApplication(t, before, d.MustState(t))
	}
	// untouched asserts that release 1 has run without a break since then.
	untouched := func(t *testing.T, since time.Time) {
		t.Helper()
		inOne(t)
		require.Equal(t, before.Containers, d.MustState(t).Containers)
		down, times := w.Down(since)
		require.Zero(t, times, "the web service was down for %v", down)
	}

	said := e2e.MenderFails(t, d, "install", crash)
	t.Run("every failed install ends inconsistent", func(t *testing.T) {
		require.NotContains(t, said, "nconsistent")
		inOne(t)
		before = d.MustState(t)
	})
	t.Run("a service that crashes at once is reported as installed", func(t *testing.T) {
		require.Contains(t, said, "the till is on fire")
	})
	t.Run("a rollback never works", func(t *testing.T) {
		e2e.Mender(t, d, "install", two)
		e2e.Says(t, w, "web 2")
		e2e.Mender(t, d, "rollback")
		inOne(t)
		before = d.MustState(t)
	})
	t.Run("two bad updates in a row leave the application down", func(t *testing.T) {
		e2e.MenderFails(t, d, "install", crash)
		e2e.MenderFails(t, d, "install", sick)
		inOne(t)
		before = d.MustState(t)
	})
	t.Run("an invalid compose file leaves the application down", func(t *testing.T) {
		since := time.Now()
		e2e.MenderFails(t, d, "install", reference(t, func(h *bed.Handmade) {
			bed.Find(h.Manifests, ".yml").Data = []byte("services: {web: {image: shop/web:2, ports: nonsense}}\n")
		}))
		untouched(t, since)
	})
	t.Run("a wrong image leaves the application down and deletes a shared image", func(t *testing.T) {
		since := time.Now()
		e2e.MenderFails(t, d, "install", reference(t, func(h *bed.Handmade) {
			bed.Find(h.Images, "/image.img").Data = []byte("no image\n")
		}))
		untouched(t, since)
	})
	t.Run("wrong sums are not checked", func(t *testing.T) {
		since := time.Now()
		said := e2e.MenderFails(t, d, "install", reference(t, func(h *bed.Handmade) {
			bed.Find(h.Images, "/sums-new.txt").Data = []byte(digest('0') + "\n")
		}))
		e2e.RequireErrorLine(t, digest('0')[:8], said)
		untouched(t, since)
		old, new := filepath.Join(t.TempDir(), "old.tar"), filepath.Join(t.TempDir(), "new.tar")
		require.NoError(t, bed.WriteArchive(old, e2e.Web(t, "1", "")))
		require.NoError(t, bed.WriteArchive(new, e2e.Web(t, "2", "")))
		said = e2e.MenderFails(t, d, "install", reference(t, func(h *bed.Handmade) {
			bed.Find(h.Images, "/image.img").Data = e2e.XDelta(t, old, new)
			bed.Find(h.Images, "/url-current.txt").Data = []byte("shop/web:1\n")
			bed.Find(h.Images, "/sums-current.txt").Data = []byte(digest('1') + "\n")
		}))
		e2e.RequireErrorLine(t, digest('1')[:8], said)
		untouched(t, since)
	})
	for _, point := range []string{"Download/called.LOAD:2", "ArtifactInstall/called.ROLLOUT:1"} {
		t.Run("killed at "+point+", then a bad update leaves the application down", func(t *testing.T) {
			e2e.Killed(t, d, "app "+point, "install", two)
			e2e.MenderFails(t, d, "install", crash)
			inOne(t)
			before = d.MustState(t)
		})
	}
	t.Run("the same image is shipped whole inside a delta", func(t *testing.T) {
		file := e2e.Generate(t, d, "shop", "shop-2", "2", e2e.Compose("2"), "--deep-delta",
			e2e.Delta(t, e2e.Web(t, "1", ""), e2e.Web(t, "2", "")), e2e.Delta(t, e2e.Stock(t), e2e.Stock(t)))
		whole, err := os.Stat(one)
		require.NoError(t, err)
		small, err := os.Stat(file)
		require.NoError(t, err)
		require.Less(t, small.Size(), whole.Size()/10)
		two = file
	})
	t.Run("the old application is stopped before the new one is unpacked", func(t *testing.T) {
		since := time.Now()
		code, said := e2e.During(t, d, "ArtifactInstall/call.ROLLOUT", func() {
			down, times := w.Down(since)
			require.Zero(t, times, "the web service was down for %v", down)
			require.Equal(t, before.Containers, d.MustState(t).Containers)
		}, "install", two)
		require.Zero(t, code, said)
		e2e.Says(t, w, "web 2")
	})
	t.Run("the unchanged service is restarted", func(t *testing.T) {
		require.Equal(t, before.Service("shop", "stock"), d.MustState(t).Service("shop", "stock"))
	})
	t.Run("there is no way back after success", func(t *testing.T) {
		e2e.Mender(t, d, "commit")
		e2e.Settled(t, d, w, "2")
		d.MustRun(t, "mender-app", "rollback", "shop")
		e2e.Says(t, w, "web 1")
		require.Equal(t, before.Service("shop", "web").Image, d.MustState(t).Service("shop", "web").Image)
	})
	t.Run("there is one project on a device", func(t *testing.T) {
		kiosk := e2e.Build(t, bed.Shop{Ref: "kiosk/front:1", Version: "1", Service: "kiosk", Base: 512})
		e2e.Mender(t, d, "install", e2e.Generate(t, d, "kiosk", "kiosk-1", "1", "services: {front: {image: \"kiosk/front:1\"}}\n", e2e.Archive(t, kiosk)))
		e2e.Mender(t, d, "commit")
		s := d.MustState(t)
		require.Equal(t, "running", s.Service("kiosk", "front").Status)
		require.Equal(t, before.Service("shop", "stock"), s.Service("shop", "stock"))
		e2e.Says(t, w, "web 1")
	})
}
