package encoder

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// What can be read at its path is what a store has there after it unpacked the tar.
func TestReadable(t *testing.T) {
	file := func(p string) tarheader.Member {
		return tarheader.Member{Header: tarheader.Header{Path: p, Type: '0', Size: 1}}
	}
	soft := func(p, to string) tarheader.Member {
		return tarheader.Member{Header: tarheader.Header{Path: p, Type: '2', Link: to}}
	}
	dir := func(p string) tarheader.Member { return tarheader.Member{Header: tarheader.Header{Path: p, Type: '5'}} }
	for name, c := range map[string]struct {
		members []tarheader.Member
		want    []int
	}{
		"plain":                      {[]tarheader.Member{dir("d"), file("d/a"), file("b"), soft("s", "b")}, []int{1, 2}},
		"twice":                      {[]tarheader.Member{file("a"), file("a")}, []int{1}},
		"a file, then a link":        {[]tarheader.Member{file("a"), soft("a", "b"), file("b")}, []int{2}},
		"through an absolute link":   {[]tarheader.Member{dir("run"), soft("var", "/run"), file("var/a")}, []int{2}},
		"through a link that climbs": {[]tarheader.Member{soft("v/r", "../../../run"), file("v/r/a"), file("run/b")}, []int{1, 2}},
		"one file by two names":      {[]tarheader.Member{soft("v", "/"), file("v/a"), file("a"), file("v/b")}, []int{2, 3}},
		"links to links":             {[]tarheader.Member{soft("one", "/two"), soft("two", "a/t"), soft("a/t", "/a/b"), file("one/x"), file("a/b/x")}, []int{4}},
		"the link is later":          {[]tarheader.Member{file("d/a"), soft("d", "e"), file("e/a")}, []int{2}},
		"a directory again":          {[]tarheader.Member{file("d/a"), dir("d"), file("d/b")}, []int{0, 2}},
		"a directory, a file, again": {[]tarheader.Member{file("d/a"), file("d"), dir("d"), file("d/b")}, []int{3}},
		"a loop":                     {[]tarheader.Member{soft("a", "b"), soft("b", "a"), file("a/x"), file("y")}, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			got := readable(c.members)
			require.Equal(t, c.want, slices.Sorted(maps.Values(got)))
			for p, i := range got {
				require.Equal(t, c.members[i].Path, p)
			}
		})
	}
}
