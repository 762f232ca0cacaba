package corpus

import (
	"context"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list names each pair once, with a kind, and what is recorded is whole: the digests
// of both images, and a file for each name of a set.
func TestPublicListIsWhole(t *testing.T) {
	sums, err := recordedSums()
	require.NoError(t, err)
	pins, err := RecordedPins()
	require.NoError(t, err)
	seen := map[string]bool{}
	whole := 0
	for _, p := range Public() {
		require.False(t, seen[p.Name], p.Name)
		seen[p.Name] = true
		require.NotEmpty(t, p.Kind, p.Name)
		require.NotEmpty(t, p.Platform(), p.Name)
		v1, v2 := sums[p.Name+"/v1.tar"], sums[p.Name+"/v2.tar"]
		if v1 == "" && v2 == "" {
			_, err := p.Build(t.Context(), t.TempDir())
			require.ErrorIs(t, err, ErrUnavailable, "%s has no recorded digests", p.Name)
			continue
		}
		require.Len(t, v1, 64, p.Name)
		require.Len(t, v2, 64, p.Name)
		whole++
	}
	require.GreaterOrEqual(t, whole, 16)
	for key, names := range pins.sets {
		require.NotEmpty(t, names, key)
		for _, n := range names {
			require.Contains(t, pins.files, n, key)
		}
	}
	for what := range pins.progs {
		require.True(t, strings.HasPrefix(what, Toolchain+" "), what)
	}
}

// A package that is not what is recorded is refused with both digests, and the next
// mirror is asked. What was downloaded is not asked for again.
func TestDownload(t *testing.T) {
	content := "a package"
	sum := hex.EncodeToString(sum256([]byte(content)))
	asked := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		switch {
		case strings.HasPrefix(r.URL.Path, "/changed/"):
			w.Write([]byte("b package"))
		case strings.HasPrefix(r.URL.Path, "/endless/"):
			w.Write([]byte(strings.Repeat("a", 1<<20)))
		case r.URL.Path == "/good/debian/pool/main/a/a_1_arm64.deb":
			w.Write([]byte(content))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	mirrors := func(names ...string) {
		for i, n := range names {
			names[i] = server.URL + "/" + n + "/{archive}/{path}"
		}
		t.Setenv(MirrorsVariable, strings.Join(names, " "))
	}
	b := &builder{ctx: context.Background(), cache: t.TempDir()}
	p := pin{sum, int64(len(content)), "debian/pool/main/a/a_1_arm64.deb"}

	mirrors("changed", "endless", "gone")
	_, err := b.download(p)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "recorded are 9 with "+sum)
	require.ErrorContains(t, err, "has 10 bytes")
	require.ErrorContains(t, err, "404")
	left, err := os.ReadDir(filepath.Join(b.cache, "debs"))
	require.NoError(t, err)
	require.Empty(t, left)

	mirrors("gone", "good")
	for range 2 {
		file, err := b.download(p)
		require.NoError(t, err)
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, content, string(have))
	}
	require.Equal(t, 1, asked["/good/debian/pool/main/a/a_1_arm64.deb"])
}

func TestReadPins(t *testing.T) {
	text := "# a comment\nprogram 00aa go1 linux/arm64 example.org/x@v1\n" +
		"file 11bb 12 debian/pool/main/a/a_1_arm64.deb\nset arm64 bookworm a: a_1_arm64.deb\n"
	p, err := readPins(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, pin{"11bb", 12, "debian/pool/main/a/a_1_arm64.deb"}, p.files["a_1_arm64.deb"])
	require.Equal(t, []string{"a_1_arm64.deb"}, p.sets["arm64 bookworm a"])
	require.ErrorContains(t, p.program("go1 linux/arm64 example.org/x@v1", []byte("x")), "recorded is \"00aa\"")

	file := filepath.Join(t.TempDir(), "inputs.txt")
	require.NoError(t, p.Merge(file))
	require.NoError(t, NewPins().Merge(file)) // nothing is lost
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	again, err := readPins(f)
	require.NoError(t, err)
	require.Equal(t, p, again)

	for _, bad := range []string{"file 11bb x debian/a", "file 11bb", "set arm64 bookworm a", "other"} {
		_, err := readPins(strings.NewReader(bad))
		require.Error(t, err, bad)
	}
}
