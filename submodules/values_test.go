package submodules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is written is read again, and files of a bounded length alone.
func TestValues(t *testing.T) {
	values := map[string]string{"A": "", "B": `a "b" $c \n`, "C_1": "å"}
	name, err := writeValues(t.TempDir(), values)
	require.NoError(t, err)
	got, err := ReadValues(name)
	require.NoError(t, err)
	require.Equal(t, values, got)
	for text, want := range map[string]string{
		"A": "line 1 is not NAME=VALUE", "\nA b=1": "line 2: a value's name", strings.Repeat("#\n", MaxValuesFile): "larger than 65536 bytes",
	} {
		file := filepath.Join(t.TempDir(), "x.env")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := ReadValues(file)
		require.ErrorContains(t, err, want)
	}
	_, err = ReadValues(t.TempDir())
	require.ErrorContains(t, err, "is a directory, not a file")
}
