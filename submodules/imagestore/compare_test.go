package imagestore

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a layer removes is not there; what it removes and makes anew is, and
// however much it removes, little is remembered of it.
func TestCompareRemoved(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "anew/below"), 0o755))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	compare := func(names ...string) []string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range names {
			h := &tar.Header{Typeflag: tar.TypeReg, Name: name}
			if name[len(name)-1] == '/' {
				h.Typeflag = tar.TypeDir
			}
			require.NoError(t, w.WriteHeader(h))
		}
		require.NoError(t, w.Close())
		list, err := Compare(t.Context(), &b, root)
		require.NoError(t, err)
		return list
	}
	require.Empty(t, compare(".wh.anew", "anew/", "anew/.wh..wh..opq"))
	require.Empty(t, compare(".wh.anew", "anew/below/"), "its directory has no entry of its own")
	require.Equal(t, []string{"anew is not removed any more", "other is not removed any more"}, compare(".wh.other", ".wh.anew"))
	// As overlayfs keeps it. Not every root may make devices.
	if os.Symlink("/dev/null", filepath.Join(dir, "link")) == nil {
		require.Equal(t, []string{"link is not removed any more"}, compare(".wh.link"), "a link to a device is no whiteout")
	}
	var many []string
	for i := range 2 * maxProblems {
		many = append(many, fmt.Sprintf(".wh.%04d", i))
	}
	list := compare(many...)
	require.Len(t, list, MaxNamed+1)
	require.Equal(t, fmt.Sprintf("and %d more", maxProblems-MaxNamed), list[MaxNamed])
}
