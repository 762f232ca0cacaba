package settings

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mender-app/mender-app/submodules"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A file that is not trusted is refused before anything of it is read, and nobody is waited
// for: whoever may write to a directory may put a pipe into it.
func TestTrusted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "values.d")
	app := filepath.Join(dir, "shop")
	require.NoError(t, os.MkdirAll(app, 0o755))
	file := filepath.Join(app, "x.env")
	write := func() {
		t.Helper()
		require.NoError(t, errors.Join(os.RemoveAll(file), os.WriteFile(file, []byte("LANGUAGE=de\n"), 0o644)))
	}
	pipe := func() {
		t.Helper()
		require.NoError(t, errors.Join(os.RemoveAll(file), unix.Mkfifo(file, 0o644)))
	}
	read := func() (map[string]string, string) {
		t.Helper()
		type answer struct {
			values map[string]string
			err    error
		}
		done := make(chan answer, 1)
		go func() {
			values, err := (Values{Dir: dir}).device("shop")
			done <- answer{values, err}
		}()
		select {
		case a := <-done:
			if a.err == nil {
				return a.values, ""
			}
			return a.values, strings.ReplaceAll(a.err.Error(), dir+"/", "")
		case <-time.After(20 * time.Second):
			t.Fatal("it waits for somebody to write into the pipe")
			return nil, ""
		}
	}
	write()
	values, said := read()
	require.Equal(t, map[string]string{"LANGUAGE": "de"}, values)
	require.Empty(t, said)
	for want, prepare := range map[string]func(){
		"shop/x.env is not a file":                                                            pipe,
		"shop can be changed by others than its owner: chmod go-w":                            func() { pipe(); require.NoError(t, os.Chmod(app, 0o775)) },
		"shop/x.env can be changed by others than its owner: chmod go-w":                      func() { pipe(); require.NoError(t, os.Chmod(file, 0o664)) },
		"shop/x.env is a link: what it leads to is not checked, so put the file itself there": func() { require.NoError(t, errors.Join(os.Remove(file), os.Symlink("/dev/zero", file))) },
		"shop/x.env is larger than 65536 bytes":                                               func() { require.NoError(t, os.Truncate(file, submodules.MaxValuesFile+1)) },
	} {
		require.NoError(t, os.Chmod(app, 0o755))
		write()
		prepare()
		values, said := read()
		require.Empty(t, values, want)
		require.Equal(t, want, said)
	}

	// The same for the layers of overrides.
	require.NoError(t, os.Chmod(app, 0o775))
	require.NoError(t, unix.Mkfifo(filepath.Join(app, "x.yaml"), 0o644))
	list, err := Layers(slog.New(slog.DiscardHandler), dir, nil, "shop", nil)
	require.ErrorContains(t, err, "can be changed by others")
	require.Empty(t, list)
}
