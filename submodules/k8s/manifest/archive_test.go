package manifest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPack(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": "a", "sub/b": "b", ".env": "c"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
	}
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	archive, err := Pack(dir)
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "new")
	require.NoError(t, Unpack(archive, out))
	got, err := os.ReadFile(filepath.Join(out, "sub/b"))
	require.NoError(t, err)
	require.Equal(t, "b", string(got))
	_, err = os.Lstat(filepath.Join(out, "link"))
	require.ErrorIs(t, err, os.ErrNotExist)

	big := make([]byte, maxArchive+1)
	_, _ = rand.NewChaCha8([32]byte{}).Read(big)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), big, 0o644))
	archive, err = Pack(dir)
	require.NoError(t, err)
	require.Nil(t, archive)
}
