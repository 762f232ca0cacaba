package preloaded

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store"
)

// TestFormatDocument compares the record with its table in store/FORMAT.md.
func TestFormatDocument(t *testing.T) {
	text, err := os.ReadFile("../../../store/FORMAT.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## staged/<digest>"+suffix+"\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, fields []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	for i := range reflect.TypeFor[file]().NumField() {
		fields = append(fields, reflect.TypeFor[file]().Field(i).Tag.Get("json"))
	}
	require.Equal(t, slices.Sorted(slices.Values(fields)), slices.Sorted(slices.Values(documented)))
	require.Contains(t, section, "`<digest>"+suffix+aside+"`")
}

// TestRecords: what counts as loaded, and what is to be undone.
func TestRecords(t *testing.T) {
	s := store.At(t.TempDir())
	require.False(t, Any(s), "nothing was ever staged")
	require.NoError(t, os.MkdirAll(s.Meta(dir), 0o700))
	artifact := digest.Of([]byte("shop-2"))
	image := digest.Of([]byte("web"))
	r := Of(artifact, &store.Release{Application: "shop", Orchestrator: "fake", Components: []store.Component{{URL: "web:2", Digest: image}}}, 7)
	require.NoError(t, r.Write(s))
	require.NoError(t, os.WriteFile(path(s, artifact, stagedSuffix), nil, 0o600))
	require.True(t, Any(s), "it is not complete")
	require.Nil(t, Find(s, artifact))
	require.Empty(t, Loaded(s, "shop", "fake"))
	require.EqualValues(t, 7, BytesOf(s, artifact), "a part counts as the whole")

	r.Release.Complete = true
	require.NoError(t, r.Write(s))
	require.False(t, Any(s))
	require.EqualValues(t, 7, Find(s, artifact).Engine)
	require.True(t, Loaded(s, "shop", "fake")[image])
	require.Empty(t, Loaded(s, "other", "fake"))
	require.Empty(t, Loaded(s, "shop", "k8s"))

	require.NoError(t, os.Remove(path(s, artifact, stagedSuffix)))
	doomed, err := Doomed(s)
	require.NoError(t, err)
	require.Len(t, doomed, 1, "its artifact is no longer staged")
	require.NoError(t, doomed[0].Remove(s))

	for _, text := range []string{"{", `{"format":1}`, `{"format":1,"release":{"application":"../x"}}`} {
		require.NoError(t, os.WriteFile(path(s, artifact, suffix), []byte(text), 0o600))
		_, err = List(s)
		var corrupt *store.CorruptError
		require.ErrorAs(t, err, &corrupt, text)
		require.True(t, Any(s))
		_, err = Doomed(s)
		require.ErrorContains(t, err, "it is kept as")
		require.False(t, Any(s))
	}
	require.NoError(t, os.WriteFile(path(s, artifact, suffix), []byte(`{"format":2,"release":{"application":"shop"}}`), 0o600))
	_, err = Doomed(s)
	require.ErrorIs(t, err, store.ErrNewer)
	require.FileExists(t, path(s, artifact, suffix), "a newer mender-app knows it")
}
