package source

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/layer"
)

func TestMeter(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, size := range []int{700, 3} {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: int64(size)}))
		_, err := w.Write(make([]byte, size))
		require.NoError(t, err)
	}
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "d/"}))
	require.NoError(t, w.Close())
	// An old GNU sparse file of 1 GiB with no data, as GNU tar -S writes it.
	h := make([]byte, 512)
	copy(h, "hole")
	copy(h[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00")
	h[156] = tar.TypeGNUSparse
	copy(h[257:], "ustar  \x00")
	copy(h[386:], "10000000000\x0000000000000\x00") // one piece, at the end, of nothing
	copy(h[483:], "10000000000\x00")                // the real size, 1 GiB
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], []byte{'0', byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	for name, c := range map[string]struct {
		tar  []byte
		want int64
	}{
		"files": {b.Bytes(), 703}, "a sparse file": {append(h, b.Bytes()...), 1<<30 + 703}, "no tar": {[]byte("nonsense"), 0}, "nothing": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeter()
			for p := c.tar; len(p) > 0; {
				n, err := m.Write(p[:min(len(p), 100)])
				require.NoError(t, err)
				p = p[n:]
			}
			require.Equal(t, c.want, m.End())
		})
	}
}

// What Docker's classic store does not take is named; the conformance suite of image stores
// shows that it does not, with the same layers.
func TestClassicStore(t *testing.T) {
	dir := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeDir, Name: name} }
	file := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name} }
	link := func(name, to string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
	}
	for name, c := range map[string]struct {
		members []*tar.Header
		says    string
	}{
		"plain":                   {[]*tar.Header{dir("a/"), file("a/b"), link("c", "a/b"), file(".wh.x"), file(".wh.x")}, ""},
		"a file twice":            {[]*tar.Header{file("a"), file("./a")}, "it has a twice"},
		"a directory twice":       {[]*tar.Header{dir("a/"), file("a/b"), dir("a")}, "it has a twice"},
		"a link into nothing":     {[]*tar.Header{link("run", "/not/here"), file("run/app")}, "run/app below a link"},
		"a loop":                  {[]*tar.Header{link("a", "b"), link("b", "a"), file("a/c")}, ""},
		"an absolute link":        {[]*tar.Header{dir("run/"), dir("var/"), link("var/run", "/run"), file("var/run/app")}, ""},
		"a link that climbs":      {[]*tar.Header{dir("run/"), link("var/run", "../../../run"), file("var/run/app")}, ""},
		"links to links":          {[]*tar.Header{dir("a/b/"), link("one", "/two"), link("two", "a/three"), link("a/three", "/a/b"), file("one/app"), link("one/up", "../.."), file("one/up/top")}, ""},
		"a directory without one": {[]*tar.Header{file("real/x"), link("l", "real"), file("l/y")}, ""},
		"a hard link":             {[]*tar.Header{file("d/a"), link("l", "d"), hard("b", "/d/a"), hard("c", "l/a")}, ""},
		"a hard link below":       {[]*tar.Header{file("d/b"), hard("c", "d/a")}, "it has c as a hard link to d/a, which it does not have"},
		"a hard link, early":      {[]*tar.Header{hard("c", "a"), file("a")}, "it has c as a hard link to a"},
		"a link to the root":      {[]*tar.Header{link("l", "/"), file("l/y")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, says := newPlaces(), ""
			for _, h := range c.members {
				if says == "" {
					says = p.add(layer.Of(h))
				}
			}
			if c.says == "" {
				require.Empty(t, says)
			} else {
				require.Contains(t, says, c.says)
			}
		})
	}
}

// What no engine unpacks is refused where the artifact is made.
func TestRefusal(t *testing.T) {
	member := func(typeflag byte, name string) layer.Member {
		return layer.Of(&tar.Header{Typeflag: typeflag, Name: name})
	}
	for says, members := range map[string][]layer.Member{
		"--format=posix":             {member(tar.TypeReg, "a"), member(tar.TypeGNUSparse, "b")},
		"type '7'":                   {member(tar.TypeCont, "a")},
		"makes d/a and then removes": {member(tar.TypeReg, "d/a"), member(tar.TypeReg, "d/.wh.a")},
		"": {
			member(tar.TypeXGlobalHeader, "pax_global_header"), member(tar.TypeReg, ".wh.d"), member(tar.TypeDir, "d/"),
			member(tar.TypeReg, "d/.wh..wh..opq"), member(tar.TypeLink, "d/a"), member(tar.TypeFifo, "b"), member(tar.TypeReg, ".wh.c"),
		},
	} {
		var err error
		made := map[string]bool{}
		for _, m := range members {
			if err == nil {
				err = refusal(m, made)
			}
		}
		if says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
}
