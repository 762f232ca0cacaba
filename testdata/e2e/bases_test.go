package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// edition is the web service in release 1, 2 or 3, with data: a catalogue that
// release 3 changes a little, and pictures that are new in release 2 and in release
// 3.
func edition(t *testing.T, n int) bed.Image {
	t.Helper()
	img := web(t, fmt.Sprint(n), "")
	picture := func(seed byte, size int) []byte {
		b := make([]byte, size)
		rand.NewChaCha8([32]byte{seed}).Read(b)
		return b
	}
	var catalogue bytes.Buffer
	for i := range 20_000 {
		price := i * 7 % 1000
		if n == 3 && i%500 == 0 {
			price++
		}
		fmt.Fprintf(&catalogue, "article %d costs %d\n", i*i%99991, price)
	}
	files := []bed.File{{Name: "srv/catalogue", Data: catalogue.Bytes()}, {Name: "srv/edition", Data: fmt.Appendf(nil, "%d\n", n)}}
	if n >= 2 {
		files = append(files, bed.File{Name: "srv/picture-two", Data: picture(2, 50_000)})
	}
	if n == 3 {
		files = append(files, bed.File{Name: "srv/picture", Data: picture(3, 400_000)})
	}
	img.Layers = append(slices.Clone(img.Layers), files)
	return img
}

// alone is a compose file of the web service alone.
func alone(n int) string {
	return fmt.Sprintf("services:\n  web:\n    image: shop/web:%d\n    ports: [\"8080:8080\"]\n    stop_grace_period: 2s\n", n)
}

// whole makes the full artifact of release 1 or 2.
func whole(t *testing.T, d *bed.Device, n int) string {
	t.Helper()
	return generate(t, d, "shop", fmt.Sprintf("shop-%d", n), fmt.Sprint(n), alone(n), archive(t, edition(t, n)))
}

// third makes the artifact of release 3 over the releases in the given artifacts.
func third(t *testing.T, d *bed.Device, bases []string, options ...string) string {
	t.Helper()
	_, next, _ := strings.Cut(archive(t, edition(t, 3)), "=")
	for _, b := range bases {
		options = append(options, "--image=mender:"+b+","+next)
	}
	return generate(t, d, "shop", "shop-3", "3", alone(3), options...)
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	require.NoError(t, err)
	return info.Size()
}

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
		{"neither", 0, []string{"--full-fallback", coded}, "base whole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			w := watch(t, d)
			releases := []string{whole(t, d, 1), whole(t, d, 2)}
			if c.has > 0 {
				mender(t, d, "install", releases[c.has-1])
				mender(t, d, "commit")
				says(t, w, fmt.Sprintf("web %d", c.has))
			}
			file := third(t, d, releases, c.options...)
			if len(c.options) == 0 {
				third(t, d, releases[:1], "--output-path", d.Share("1.mender"))
				third(t, d, releases[1:], "--output-path", d.Share("2.mender"))
				one, two, both := size(t, d.Share("1.mender")), size(t, d.Share("2.mender")), size(t, file)
				t.Logf("over 1: %d bytes, over 2: %d, over either: %d", one, two, both)
				require.Less(t, both-max(one, two), min(one, two)/3, "what they share is there once")
			}
			r, err := d.Mender("install", file)
			require.NoError(t, err)
			require.Zero(t, r.Code, r.Output())
			require.Contains(t, r.Output(), c.took)
			mender(t, d, "commit")
			says(t, w, "web 3")
			d.MustProvide(t, provides("3"))
			d.MustRun(t, "mender-app", "verify", "shop")
		})
	}
}

// The Mender client itself refuses the artifact on a device with another version,
// before it has read any of the payload.
func TestSeveralBasesDepends(t *testing.T) {
	d := device(t)
	releases := []string{whole(t, d, 1), whole(t, d, 2)}
	file := third(t, d, releases)
	other := generate(t, d, "shop", "shop-0", "0.9", alone(1), archive(t, edition(t, 1)))
	mender(t, d, "install", other)
	mender(t, d, "commit")
	before := d.MustState(t)
	said := menderFails(t, d, "install", file)
	require.Contains(t, said, "data-partition.shop.version")
	require.NotContains(t, said, "the image comes in several variants", "the module was asked")
	require.Equal(t, before, d.MustState(t))

	// The same release, under a version that the artifact accepts.
	mender(t, d, "install", releases[0])
	mender(t, d, "commit")
	mender(t, d, "install", file)
	mender(t, d, "commit")
	d.MustProvide(t, provides("3"))
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
			img := edition(t, 1)
			img.Layers = append(img.Layers, []bed.File{{Name: "srv/other", Data: []byte("built on another day")}})
			file := generate(t, d, "shop", "shop-1-again", "1", alone(1), archive(t, img))
			mender(t, d, "install", file)
			mender(t, d, "commit")
		}, []string{"shop/web:1", "install the full artifact"}},
		{"damaged", nil, damagedCatalogue, []string{"srv/catalogue", "is damaged"}},
		{"damaged of one", []string{"one"}, damagedCatalogue, []string{"srv/catalogue", "is damaged"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			releases := []string{whole(t, d, 1), whole(t, d, 2)}
			c.prepare(t, d, releases)
			if len(c.options) > 0 {
				releases = releases[:1]
			}
			file := third(t, d, releases, "--no-depends")
			before := d.MustState(t, except...)
			said := menderFails(t, d, "install", file)
			for _, s := range c.says {
				require.Contains(t, said, s)
			}
			require.Equal(t, before, d.MustState(t, except...))
		})
	}
}

// anotherRelease installs a release that is the base of no delta.
func anotherRelease(t *testing.T, d *bed.Device, _ []string) {
	mender(t, d, "install", generate(t, d, "shop", "shop-9", "9", alone(9), archive(t, web(t, "9", ""))))
	mender(t, d, "commit")
}

// damagedCatalogue installs release 1 and changes a file of its image on disk.
func damagedCatalogue(t *testing.T, d *bed.Device, releases []string) {
	mender(t, d, "install", releases[0])
	mender(t, d, "commit")
	found := strings.Fields(d.MustRun(t, "find", filepath.Join(d.Dir, "docker", "overlay2"), "-path", "*/diff/srv/catalogue"))
	require.Len(t, found, 1)
	d.MustRun(t, "bash", "-ec", "printf X | dd of="+found[0]+" bs=1 seek=3000 conv=notrunc status=none")
}

// A delta takes content from images of the device that the generator was given for
// other images, and from earlier images of the same artifact.
func TestContentOfOtherImages(t *testing.T) {
	d := device(t)
	w := watch(t, d)
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
	web1, stock1 := with(web(t, "1", ""), "shop/web:1", a), with(stock(t), "shop/stock:1", bed.File{Name: "srv/s", Data: []byte("1")})
	web2 := with(web(t, "2", ""), "shop/web:2", a, b)
	stock2 := with(stock(t), "shop/stock:2", changed, bed.File{Name: "srv/moved", Data: b.Data}) // web's old file, and web's new one
	manifest := func(n int) string {
		return strings.Replace(compose(fmt.Sprint(n)), "shop/stock:1", fmt.Sprintf("shop/stock:%d", n), 1)
	}
	mender(t, d, "install", generate(t, d, "shop", "shop-1", "1", manifest(1), archive(t, web1), archive(t, stock1)))
	mender(t, d, "commit")
	says(t, w, "web 1")
	file := generate(t, d, "shop", "shop-2", "2", manifest(2), "--no-depends", delta(t, web1, web2), delta(t, stock1, stock2))
	require.Less(t, size(t, file), int64(300_000+120_000), "b is there once, a not at all")
	mender(t, d, "install", file)
	mender(t, d, "commit")
	says(t, w, "web 2")
	require.Equal(t, "shop/stock:2", d.MustState(t).Service("shop", "stock").Ref)
	d.MustRun(t, "mender-app", "verify", "shop")
}
