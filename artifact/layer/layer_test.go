package layer

import (
	"archive/tar"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		typeflag byte
		name     string
		kind     Kind
		path     string
	}{
		{tar.TypeReg, "a/b", File, "a/b"},
		{tar.TypeReg, "./a//b/", File, "a/b"},
		{tar.TypeDir, "../../a/", Dir, "a"},
		{tar.TypeDir, "./", None, ""},
		{tar.TypeSymlink, "/a", Symlink, "a"},
		{tar.TypeLink, "a", Link, "a"},
		{tar.TypeFifo, "a", Node, "a"},
		{tar.TypeChar, "a", Node, "a"},
		{tar.TypeXGlobalHeader, "pax_global_header", None, "pax_global_header"},
		{tar.TypeXGlobalHeader, "a/.wh.b", None, "a/.wh.b"},
		{tar.TypeReg, "a/.wh.b", Whiteout, "a/b"},
		{tar.TypeDir, ".wh.b/", Whiteout, "b"},
		{tar.TypeReg, "a/.wh..wh..opq", Opaque, "a"},
		{tar.TypeReg, ".wh..wh..opq", Opaque, ""},
		{tar.TypeReg, ".wh..wh.aufs", None, ".wh..wh.aufs"},
		{tar.TypeReg, ".wh..wh.plnk/1.2", File, ".wh..wh.plnk/1.2"},
		{tar.TypeGNUSparse, "a", Unknown, "a"},
		{tar.TypeCont, "a", Unknown, "a"},
		{'V', "label", Unknown, "label"},
	} {
		m := Of(&tar.Header{Typeflag: c.typeflag, Name: c.name})
		require.Equal(t, c.kind, m.Kind, "%c %s", c.typeflag, c.name)
		require.Equal(t, c.path, m.Path, c.name)
	}
}
