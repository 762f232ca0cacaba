package input

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(file, []byte("words"), 0o600))
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(pipe, filepath.Join(dir, "link")))
	data, err := Read(file, 5)
	require.NoError(t, err)
	require.Equal(t, "words", string(data))
	_, err = Read(file, 4)
	require.EqualError(t, err, file+" is larger than 4 bytes")
	for path, what := range map[string]string{pipe: "a pipe", filepath.Join(dir, "link"): "a pipe", dir: "a directory", "/dev/zero": "a device"} {
		_, err := Open(path)
		require.EqualError(t, err, path+" is "+what+", not a file")
	}
	_, err = Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)

	// What this process has open may be a pipe: mender-app install <(curl …).
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString("words")
	require.NoError(t, err)
	dup, err := unix.Dup(int(r.Fd()))
	require.NoError(t, err)
	defer unix.Close(dup)
	f, err := Open("/dev/fd/" + strconv.Itoa(dup))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, w.Close())
	data, err = io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "words", string(data))
}
