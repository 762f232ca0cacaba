package names_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/names"
)

func TestCheck(t *testing.T) {
	for _, ok := range []string{"a", "0", "web-1.2_x", "A.", "a..b", strings.Repeat("x", names.Max)} {
		require.NoError(t, names.Check(ok), ok)
	}
	for _, bad := range []string{"", ".", "..", ".hidden", "-a", "_a", "/", "a/b", "a b", "a\n", "a\x00b", "\xff", "é", "a\u202eb", "x" + strings.Repeat("é", 60), strings.Repeat("x", names.Max+1)} {
		err := names.Check(bad)
		require.Error(t, err, "%q", bad)
		require.NotContains(t, err.Error(), "\n")
	}
	require.Less(t, len(names.Check(strings.Repeat("\x00", 1<<20)).Error()), 1000, "the error of a name of any length is short")
}

func TestCheckNew(t *testing.T) {
	for _, ok := range []string{"a", "web-1.2_x", strings.Repeat("x", names.MaxNew)} {
		require.NoError(t, names.CheckNew(ok), ok)
	}
	for _, bad := range []string{"", "..", "a..b", "-a", "a/b", strings.Repeat("x", names.MaxNew+1)} {
		require.Error(t, names.CheckNew(bad), "%q", bad)
	}
}

func TestCheckType(t *testing.T) {
	for _, ok := range []string{"image", "binary", "deb-package", "7z", strings.Repeat("x", names.MaxType)} {
		require.NoError(t, names.CheckType(ok), ok)
	}
	for _, bad := range []string{"", "-x", "Image", "a b", "a_b", "a.b", "a/b", "é", "a\n", strings.Repeat("x", names.MaxType+1)} {
		require.Error(t, names.CheckType(bad), "%q", bad)
	}
}

// Each document with the rule says the same as the code.
func TestDocuments(t *testing.T) {
	for path, want := range map[string]string{
		"../FORMAT.md":                 fmt.Sprintf("a letter or digit, then up to %d letters, digits, `_`, `.`, `-`; no `..`", names.MaxNew-1),
		"../../store/FORMAT.md":        fmt.Sprintf("a letter or digit and then up to %d letters, digits, `_`, `.` and `-`", names.Max-1),
		"../../submodules/PROTOCOL.md": fmt.Sprintf("a letter or digit and then up to %d letters, digits, `_`, `.` and `-`", names.Max-1),
	} {
		text, err := os.ReadFile(filepath.FromSlash(path))
		require.NoError(t, err)
		require.Contains(t, strings.Join(strings.Fields(string(text)), " "), want, path)
	}
}
