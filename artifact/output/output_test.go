package output_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/artifact/output/outputtest"
)

// content is larger than a pipe holds.
var content = make([]byte, 300<<10)

// TestMain makes the test a program that writes content to the name in its arguments.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == "direct" || os.Args[1] == "held") {
		if err := write(os.Args[1] == "held", os.Args[2]); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func write(held bool, name string) error {
	create := output.Create
	if held {
		create = func(ctx context.Context, name string, perm os.FileMode) (*output.File, error) {
			return output.CreateHeld(ctx, name, perm, "")
		}
	}
	f, err := create(context.Background(), name, 0o600)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Commit()
}

func whole(t testing.TB, got []byte) {
	t.Helper()
	require.Len(t, got, len(content))
}

func program(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return exec.Command(self, args...)
}

func TestEveryKindOfName(t *testing.T) {
	for _, how := range []string{"direct", "held"} {
		t.Run(how, func(t *testing.T) {
			outputtest.Test(t, outputtest.Command{
				Run:   func(name string) (string, error) { return outputtest.Said(program(t, how, name)) },
				Whole: whole,
			})
		})
	}
}

// Standard output is written to as it is, under each of its names: what a file that
// it appends to has stays.
func TestStandardOutput(t *testing.T) {
	for _, name := range []string{"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"} {
		for _, how := range []string{"direct", "held"} {
			path := filepath.Join(t.TempDir(), "log")
			require.NoError(t, os.WriteFile(path, []byte("before"), 0o600))
			log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			cmd := program(t, how, name)
			cmd.Stdout = log
			require.NoError(t, cmd.Run())
			require.NoError(t, log.Close())
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, "before", string(got[:6]))
			whole(t, got[6:])

			got, err = program(t, how, name).Output() // a pipe
			require.NoError(t, err)
			whole(t, got)
		}
	}
}

// A file that was removed and is open elsewhere has no name that could be given away.
func TestRemovedFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "removed"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Remove(f.Name()))
	cmd := program(t, "direct", "/dev/fd/3")
	cmd.ExtraFiles = []*os.File{f}
	require.NoError(t, cmd.Run())
	got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	require.NoError(t, err)
	whole(t, got)
	left, err := os.ReadDir(filepath.Dir(f.Name()))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A link is followed from where it lies, also through a linked directory.
func TestLinksAreNotCleaned(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "far/away"), 0o755))
	require.NoError(t, os.Symlink("far/away", filepath.Join(dir, "near")))
	require.NoError(t, os.Symlink("../beside", filepath.Join(dir, "far/away/link")))
	require.NoError(t, write(false, filepath.Join(dir, "near/link")))
	require.FileExists(t, filepath.Join(dir, "far/beside"))

	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	require.ErrorIs(t, write(false, filepath.Join(dir, "loop")), unix.ELOOP)
	require.Error(t, write(false, filepath.Join(dir, "far")+"/"))
	require.Error(t, write(false, filepath.Join(dir, "none")+"/"))
	require.Error(t, write(false, ""))
}

// A failed output leaves what was there, and nothing beside it.
func TestAbort(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	wrong := errors.New("wrong")
	require.ErrorIs(t, output.Write(t.Context(), path, 0, func(w io.Writer) error {
		_, _ = w.Write([]byte("new"))
		return wrong
	}), wrong)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// What takes the name while the output is written is not replaced unless it is a
// regular file.
func TestNameIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f, err := output.Create(t.Context(), path, 0)
	require.NoError(t, err)
	defer f.Abort()
	require.NoError(t, unix.Mkfifo(path, 0o600))
	require.ErrorIs(t, f.Commit(), output.ErrKind)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
}

// Neither a pipe that nobody reads nor one whose reader does nothing holds a program
// that is interrupted.
func TestPipesEndWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := output.Create(ctx, path, 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer reader.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = output.Write(ctx, path, 0, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Content can be read back before anybody else sees it.
func TestHeld(t *testing.T) {
	for _, name := range []string{"/dev/null", filepath.Join(t.TempDir(), "out")} {
		f, err := output.CreateHeld(t.Context(), name, 0, t.TempDir())
		require.NoError(t, err)
		_, err = f.Write(content)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		got, err := os.ReadFile(f.Content())
		require.NoError(t, err)
		whole(t, got)
		path := f.Content()
		require.NoError(t, f.Commit())
		require.NoFileExists(t, path)
	}
}

func TestPermissions(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	for perm, want := range map[os.FileMode]os.FileMode{0: 0o640, 0o600: 0o600, 0o644: 0o644} {
		path := filepath.Join(t.TempDir(), "out")
		require.NoError(t, output.Write(t.Context(), path, perm, func(io.Writer) error { return nil }))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm())
	}
}
