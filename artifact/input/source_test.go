package input

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// However a source is printed, the secrets of its URL are not.
func TestSource(t *testing.T) {
	for source, want := range map[Source]string{
		"https://u:hunter2@example.com/a.mender?token=hunter3#hunter4": "https://example.com/a.mender",
		"HTTPS://hunter2@example.com/a":                                "https://example.com/a",
		"https://u:hunter2@ex ample.com/a":                             "https://…",
		"https://u:hunter%zz@example.com":                              "https://…",
		"oci://u:hunter2@example.com/a":                                "oci://example.com/a",
		"https:///hunter2":                                             "https://…",
		"https://example.com/a.mender":                                 "https://example.com/a.mender",
		"shop-2.mender":                                                "shop-2.mender",
		"-":                                                            "-",
	} {
		var logged bytes.Buffer
		slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "source", source)
		text, err := json.Marshal(map[string]any{"source": source, "list": []Source{source}})
		require.NoError(t, err)
		for _, printed := range []string{source.String(), fmt.Sprint(source), fmt.Sprintf("%v %s %q %+v %#v %x", source, source, source, source, source, source), logged.String(), string(text), fmt.Errorf("open %v", source).Error()} {
			require.NotContains(t, printed, "hunter")
		}
		require.Equal(t, want, source.String())
		require.Equal(t, string(source), source.Reveal())
	}
	require.True(t, Source("https://u:p@ex ample.com").IsURL(), "no file is looked for, whose name an error would show")
	require.False(t, Source("a.mender").IsURL())

	// A URL of another kind is taken for the name of a file.
	_, err := Open("ftp://user:canary@example.com/a?token=canary")
	require.EqualError(t, err, "open ftp://example.com/a: no such file or directory")
}
