package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Edition is the web service in release 1, 2 or 3, with data: a catalogue that
// release 3 changes a little, and pictures that are new in release 2 and in release
// 3.
func Edition(t *testing.T, n int) bed.Image {
	t.Helper()
	img := Web(t, fmt.Sprint(n), "")
	picture := func(seed byte, size int) []byte {
		b := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
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

// EditionCompose is a compose file of the web service alone.
func EditionCompose(n int) string {
	return fmt.Sprintf("services:\n  web:\n    image: shop/web:%d\n    ports: [\"8080:8080\"]\n    stop_grace_period: 2s\n", n)
}

// WholeEdition makes the full artifact of release 1 or 2.
func WholeEdition(t *testing.T, d *bed.Device, n int) string {
	t.Helper()
	return Generate(t, d, "shop", fmt.Sprintf("shop-%d", n), fmt.Sprint(n), EditionCompose(n), Archive(t, Edition(t, n)))
}

// ThirdEdition makes the artifact of release 3 over the releases in the given artifacts.
func ThirdEdition(t *testing.T, d *bed.Device, bases []string, options ...string) string {
	t.Helper()
	_, next, _ := strings.Cut(Archive(t, Edition(t, 3)), "=")
	for _, b := range bases {
		options = append(options, "--image=mender:"+b+","+next)
	}
	return Generate(t, d, "shop", "shop-3", "3", EditionCompose(3), options...)
}

// FileSize returns the size of a file in bytes.
func FileSize(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	require.NoError(t, err)
	return info.Size()
}

// XDelta returns the delta of two files that xdelta3 makes.
func XDelta(t *testing.T, old, new string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "delta")
	text, err := exec.Command("xdelta3", "-e", "-f", "-s", old, new, out).CombinedOutput()
	require.NoError(t, err, "%s", text)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	return data
}
