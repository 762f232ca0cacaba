package inspect

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

// layerOf makes the tar of a layer with files of these sizes.
func layerOf(t *testing.T, sizes map[string]int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o755}))
	for name, size := range sizes {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size)}))
		_, err := w.Write(make([]byte, size))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// sparseLayer has a file of a gigabyte that is one hole.
func sparseLayer(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hole"), nil, 0o644))
	require.NoError(t, os.Truncate(filepath.Join(dir, "hole"), 1<<30))
	out, err := exec.Command("tar", "--sparse", "--format=pax", "-C", dir, "-cf", "-", "hole").Output()
	require.NoError(t, err)
	require.Less(t, len(out), 1<<20)
	return out
}

func TestLargestFiles(t *testing.T) {
	var l largest
	add := func(name string, content []byte, compression string) {
		t.Helper()
		require.NoError(t, l.layer(image.Member{Name: name, Size: int64(len(content)), Compression: compression}, bytes.NewReader(content)))
	}
	many := map[string]int{strings.Repeat("n", maxPath+1): 90_000, "empty": 0}
	for i := range 30 {
		many[fmt.Sprintf("file-%02d", i)] = 100 + i
	}
	add("one", layerOf(t, many), "")
	add("two", layerOf(t, map[string]int{"dir/large": 5000, "same": 129}), "")
	add("of-another-image", layerOf(t, map[string]int{"other": 700}), "")
	add("compressed", layerOf(t, map[string]int{"not-read": 9000}), "gzip")

	broken := layerOf(t, map[string]int{"whole": 40_000, "cut": 40_000})
	add("broken", broken[:60_000], "")
	add("sparse", sparseLayer(t), "")
	add("no tar", []byte(strings.Repeat("text ", 1000)), "")

	img := &image.StreamImage{Members: []string{"one", "two", "compressed", "broken", "sparse", ""}}
	for i := range img.Members {
		img.Layers = append(img.Layers, image.Layer{DiffID: digest.Of([]byte{byte(i)})})
	}
	list := l.of(img)
	require.Len(t, list, MaxLargest-1, "the file of another image was larger")
	require.Equal(t, LargeFile{"dir/large", 5000, img.Layers[1].DiffID}, list[0])
	require.Equal(t, LargeFile{"file-29", 129, img.Layers[0].DiffID}, list[1])
	require.Equal(t, LargeFile{"same", 129, img.Layers[1].DiffID}, list[2])
	require.Equal(t, LargeFile{"file-13", 113, img.Layers[0].DiffID}, list[18])
}
