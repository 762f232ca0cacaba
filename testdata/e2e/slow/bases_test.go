package slow

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// One artifact serves devices with release 1 and devices with release 2, and
// contains once what both need. With the whole image it also serves a device with
// neither.
func TestSeveralBases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		has     int // release on the device, 0: none
		options []string
		took    string // what the device says it took
	}{
		{"the first", 1, nil, "base shop/web:1@"},
		{"the second", 2, nil, "base shop/web:2@"},
		{"the second beside a full image", 2, []string{"--full-fallback"}, "base shop/web:2@"},
		{"neither", 0, []string{"--full-fallback", e2e.Coded}, "base whole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := e2e.Device(t)
			w := e2e.Watch(t, d)
			releases := []string{e2e.WholeEdition(t, d, 1), e2e.WholeEdition(t, d, 2)}
			if c.has > 0 {
				e2e.Mender(t, d, "install", releases[c.has-1])
				e2e.Mender(t, d, "commit")
				e2e.Says(t, w, fmt.Sprintf("web %d", c.has))
			}
			file := e2e.ThirdEdition(t, d, releases, c.options...)
			if len(c.options) == 0 {
				e2e.ThirdEdition(t, d, releases[:1], "--output-path", d.Share("1.mender"))
				e2e.ThirdEdition(t, d, releases[1:], "--output-path", d.Share("2.mender"))
				one, two, both := e2e.FileSize(t, d.Share("1.mender")), e2e.FileSize(t, d.Share("2.mender")), e2e.FileSize(t, file)
				t.Logf("over 1: %d bytes, over 2: %d, over either: %d", one, two, both)
				require.Less(t, both-max(one, two), min(one, two)/3, "what they share is there once")
			}
			r, err := d.Mender("install", file)
			require.NoError(t, err)
			require.Zero(t, r.Code, r.Output())
			require.Contains(t, r.Output(), c.took)
			e2e.Mender(t, d, "commit")
			e2e.Says(t, w, "web 3")
			d.MustProvide(t, e2e.Provides("3"))
			d.MustRun(t, "mender-app", "verify", "shop")
		})
	}
}

// The Mender client itself refuses the artifact on a device with another version,
// before it has read any of the payload.
func TestSeveralBasesDepends(t *testing.T) {
	d := e2e.Device(t)
	releases := []string{e2e.WholeEdition(t, d, 1), e2e.WholeEdition(t, d, 2)}
	file := e2e.ThirdEdition(t, d, releases)
	other := e2e.Generate(t, d, "shop", "shop-0", "0.9", e2e.EditionCompose(1), e2e.Archive(t, e2e.Edition(t, 1)))
	e2e.Mender(t, d, "install", other)
	e2e.Mender(t, d, "commit")
	before := d.MustState(t)
	said := e2e.MenderFails(t, d, "install", file)
	require.Contains(t, said, "data-partition.shop.version")
	require.NotContains(t, said, "the image comes in several variants", "the module was asked")
	require.Equal(t, before, d.MustState(t))

	// The same release, under a version that the artifact accepts.
	e2e.Mender(t, d, "install", releases[0])
	e2e.Mender(t, d, "commit")
	e2e.Mender(t, d, "install", file)
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, e2e.Provides("3"))
}

// except lists the notes that a refusal leaves: that it happened, and what an
// abandoned load may have left in the engine.
var except = []string{"/.mender-app/history", "/.mender-app/suspects.json"}

// A delta whose base is missing, is another image under the same tag, or is damaged
// on disk is refused. The message names the base, and nothing has changed.
func TestBaseThatDoesNotServe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		options []string // of the artifact
		prepare func(t *testing.T, d *bed.Device, releases []string)
		says    []string
	}{
		{"missing of one", []string{"one"}, anotherRelease, []string{"shop/web:1", "install the full artifact"}},
		{"missing of several", nil, anotherRelease, []string{"shop/web:1", "shop/web:2", "install the full artifact"}},
		{"another under the same tag", nil, func(t *testing.T, d *bed.Device, _ []string) {
			img := e2e.Edition(t, 1)
			img.Layers = append(img.Layers, []bed.File{{Name: "srv/other", Data: []byte("built on another day")}})
			file := e2e.Generate(t, d, "shop", "shop-1-again", "1", e2e.EditionCompose(1), e2e.Archive(t, img))
			e2e.Mender(t, d, "install", file)
			e2e.Mender(t, d, "commit")
		}, []string{"shop/web:1", "install the full artifact"}},
		{"damaged", nil, damagedCatalogue, []string{"srv/catalogue", "is damaged"}},
		{"damaged of one", []string{"one"}, damagedCatalogue, []string{"srv/catalogue", "is damaged"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := e2e.Device(t)
			releases := []string{e2e.WholeEdition(t, d, 1), e2e.WholeEdition(t, d, 2)}
			c.prepare(t, d, releases)
			if len(c.options) > 0 {
				releases = releases[:1]
			}
			file := e2e.ThirdEdition(t, d, releases, "--no-depends")
			before := d.MustState(t, except...)
			said := e2e.MenderFails(t, d, "install", file)
			for _, s := range c.says {
				require.Contains(t, said, s)
			}
			require.Equal(t, before, d.MustState(t, except...))
		})
	}
}

// anotherRelease installs a release that is the base of no delta.
func anotherRelease(t *testing.T, d *bed.Device, _ []string) {
	e2e.Mender(t, d, "install", e2e.Generate(t, d, "shop", "shop-9", "9", e2e.EditionCompose(9), e2e.Archive(t, e2e.Web(t, "9", ""))))
	e2e.Mender(t, d, "commit")
}

// damagedCatalogue installs release 1 and changes a file of its image on disk.
func damagedCatalogue(t *testing.T, d *bed.Device, releases []string) {
	e2e.Mender(t, d, "install", releases[0])
	e2e.Mender(t, d, "commit")
	found := strings.Fields(d.MustRun(t, "find", filepath.Join(d.Dir, "docker", "overlay2"), "-path", "*/diff/srv/catalogue"))
	require.Len(t, found, 1)
	d.MustRun(t, "bash", "-ec", "printf X | dd of="+found[0]+" bs=1 seek=3000 conv=notrunc status=none")
}

// A delta takes content from images of the device that the generator was given for
// other images, and from earlier images of the same artifact.
func TestContentOfOtherImages(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	big := func(seed byte) []byte {
		b := make([]byte, 300_000)
		rand.NewChaCha8([32]byte{seed}).Read(b)
		return b
	}
	with := func(img bed.Image, ref string, files ...bed.File) bed.Image {
		img.Ref = ref
		img.Layers = append(slices.Clone(img.Layers), files)
		return img
	}
	a, b := bed.File{Name: "srv/a", Data: big(1)}, bed.File{Name: "srv/b", Data: big(2)}
	changed := bed.File{Name: "opt/a", Data: append([]byte("a little more "), a.Data...)}
	web1, stock1 := with(e2e.Web(t, "1", ""), "shop/web:1", a), with(e2e.Stock(t), "shop/stock:1", bed.File{Name: "srv/s", Data: []byte("1")})
	web2 := with(e2e.Web(t, "2", ""), "shop/web:2", a, b)
	stock2 := with(e2e.Stock(t), "shop/stock:2", changed, bed.File{Name: "srv/moved", Data: b.Data}) // web's old file, and web's new one
	manifest := func(n int) string {
		return strings.Replace(e2e.Compose(fmt.Sprint(n)), "shop/stock:1", fmt.Sprintf("shop/stock:%d", n), 1)
	}
	e2e.Mender(t, d, "install", e2e.Generate(t, d, "shop", "shop-1", "1", manifest(1), e2e.Archive(t, web1), e2e.Archive(t, stock1)))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	file := e2e.Generate(t, d, "shop", "shop-2", "2", manifest(2), "--no-depends", e2e.Delta(t, web1, web2), e2e.Delta(t, stock1, stock2))
	require.Less(t, e2e.FileSize(t, file), int64(300_000+120_000), "b is there once, a not at all")
	e2e.Mender(t, d, "install", file)
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	require.Equal(t, "shop/stock:2", d.MustState(t).Service("shop", "stock").Ref)
	d.MustRun(t, "mender-app", "verify", "shop")
}
