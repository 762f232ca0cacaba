package store

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

// TestLoadedFormatDocument compares the record with its table in store/FORMAT.md.
func TestLoadedFormatDocument(t *testing.T) {
	text, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## staged/<digest>"+loadedSuffix+"\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, fields []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	for i := range reflect.TypeFor[loadedFile]().NumField() {
		fields = append(fields, reflect.TypeFor[loadedFile]().Field(i).Tag.Get("json"))
	}
	require.Equal(t, slices.Sorted(slices.Values(fields)), slices.Sorted(slices.Values(documented)))
	require.Contains(t, section, "`<digest>"+loadedSuffix+corruptSuffix+"`")
}

// TestRecords: what counts as loaded, and what is to be undone.
func TestRecords(t *testing.T) {
	s := At(t.TempDir())
	require.False(t, s.AnyDoomed(), "nothing was ever staged")
	require.NoError(t, os.MkdirAll(s.Meta(loadedDir), 0o700))
	artifact := digest.Of([]byte("shop-2"))
	image := digest.Of([]byte("web"))
	r := NewLoadRecord(artifact, &Release{Application: "shop", Orchestrator: "fake", Components: []Component{{URL: "web:2", Digest: image}}}, 7)
	require.NoError(t, r.Write(s))
	require.NoError(t, os.WriteFile(s.recordPath(artifact, stagedSuffix), nil, 0o600))
	require.True(t, s.AnyDoomed(), "it is not complete")
	require.Nil(t, s.LoadRecord(artifact))
	require.Empty(t, s.LoadedDigests("shop", "fake"))
	require.EqualValues(t, 7, s.LoadedBytes(artifact), "a part counts as the whole")

	r.Release.Complete = true
	require.NoError(t, r.Write(s))
	require.False(t, s.AnyDoomed())
	require.EqualValues(t, 7, s.LoadRecord(artifact).Engine)
	require.True(t, s.LoadedDigests("shop", "fake")[image])
	require.Empty(t, s.LoadedDigests("other", "fake"))
	require.Empty(t, s.LoadedDigests("shop", "k8s"))

	require.NoError(t, os.Remove(s.recordPath(artifact, stagedSuffix)))
	doomed, err := s.DoomedRecords()
	require.NoError(t, err)
	require.Len(t, doomed, 1, "its artifact is no longer staged")
	require.NoError(t, doomed[0].Remove(s))

	for _, text := range []string{"{", `{"format":1}`, `{"format":1,"release":{"application":"../x"}}`} {
		require.NoError(t, os.WriteFile(s.recordPath(artifact, loadedSuffix), []byte(text), 0o600))
		_, err = s.LoadRecords()
		var corrupt *CorruptError
		require.ErrorAs(t, err, &corrupt, text)
		require.True(t, s.AnyDoomed())
		_, err = s.DoomedRecords()
		require.ErrorContains(t, err, "it is kept as")
		require.False(t, s.AnyDoomed())
	}
	require.NoError(t, os.WriteFile(s.recordPath(artifact, loadedSuffix), []byte(`{"format":2,"release":{"application":"shop"}}`), 0o600))
	_, err = s.DoomedRecords()
	require.ErrorIs(t, err, ErrNewer)
	require.FileExists(t, s.recordPath(artifact, loadedSuffix), "a newer mender-app knows it")
}
