package daily

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A program for another architecture is in the sub-module's place: one line names
// both, and nothing changes.
func TestSubmoduleOfAnotherArchitecture(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	before := e2e.Unchanging(d.MustState(t))

	// e_machine, two bytes at 18: 22 is s390x, which no emulator here runs.
	d.MustRun(t, "bash", "-ec", "cp "+e2e.ComposeSubmodule+" /tmp/kept; printf '\\26\\0' | dd of="+e2e.ComposeSubmodule+" bs=1 seek=18 conv=notrunc status=none")
	said := e2e.MenderFails(t, d, "install", e2e.Release(t, d, "2", ""))
	e2e.RequireErrorLine(t, `a program for s390x and this machine runs `+strings.TrimPrefix(bed.Platform(), "linux/"), said)
	e2e.Says(t, w, "web 1")
	d.MustRun(t, "bash", "-ec", "cp /tmp/kept "+e2e.ComposeSubmodule)
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
}

// Nothing that grows with an image is written to /tmp: an image larger than /tmp
// installs, whole and as a delta.
func TestSmallTmp(t *testing.T) {
	d := e2e.Device(t)
	d.MustRun(t, "mount", "-o", "remount,size=32m", "/tmp")
	large := func(version string, size int) bed.Image {
		i := e2e.Web(t, version, "")
		data := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{7}).Read(data) // never fails
		if version != "1" {
			copy(data[size/2:], "something else")
		}
		i.Layers = append([][]bed.File{{{Name: "usr/share/shop/film", Data: data}}}, i.Layers...)
		return i
	}
	const size = 40 << 20
	one, two := large("1", size), large("2", size)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Generate(t, d, "shop", "shop-1", "1", e2e.Compose("1"), e2e.Archive(t, one), e2e.Archive(t, e2e.Stock(t))))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	file := e2e.Generate(t, d, "shop", "shop-2", "2", e2e.Compose("2"), "--deep-delta", e2e.Delta(t, one, two), e2e.Delta(t, e2e.Stock(t), e2e.Stock(t)))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(size/10))
	e2e.Mender(t, d, "install", file)
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	left, err := d.LeftInTmp()
	require.NoError(t, err)
	require.Empty(t, left)
}
