package hooks

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
)

// What a hook leaves is a regular file of a bounded length, or it is refused.
func TestReadHandover(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "handover")
	_, err := readHandover(file)
	require.ErrorIs(t, err, os.ErrNotExist)

	most := bytes.Repeat([]byte("x"), store.MaxHandover)
	require.NoError(t, os.WriteFile(file, most, 0o600))
	data, err := readHandover(file)
	require.NoError(t, err)
	require.Equal(t, most, data)
	require.NoError(t, os.WriteFile(file, append(most, 'x'), 0o600))
	_, err = readHandover(file)
	require.ErrorContains(t, err, "too long")

	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Symlink("/etc/passwd", file))
	_, err = readHandover(file)
	require.ErrorIs(t, err, syscall.ELOOP)
	require.NoError(t, os.Remove(file))
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	_, err = readHandover(file)
	require.ErrorContains(t, err, "not a regular file")
}
