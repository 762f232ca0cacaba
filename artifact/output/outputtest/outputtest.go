// Package outputtest holds a program to what package output says about the names of
// outputs: it calls the program with a name of each kind.
package outputtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Command is a command with an output.
type Command struct {
	// Run runs it with this name of its output, and returns what it printed.
	Run func(name string) (said string, err error)
	// Whole asserts that this is a complete output.
	Whole func(t testing.TB, content []byte)
	// Dir is a directory where the program works too; "" is one of the test's.
	Dir string
	// Shell runs a script as root on the machine of the program; nil: it is this one.
	Shell func(script string) error
	// Terminal makes a terminal of that machine; nil: without one.
	Terminal func(t testing.TB) (screen, terminal *os.File)
}

const old = "what was there\n"

// bench is the place of one case.
type bench struct {
	*testing.T
	command Command
	dir     string
}

// Test runs a command with every kind of name. Devices and mounts need root; without
// it these are left out.
func Test(t *testing.T, c Command) {
	if c.Shell == nil {
		c.Shell = func(script string) error {
			out, err := exec.Command("sh", "-ec", script).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
	}
	root := os.Geteuid() == 0
	for _, k := range kinds {
		if k.root && !root || k.name == "terminal" && c.Terminal == nil {
			continue
		}
		for _, link := range []bool{false, true} {
			name := k.name
			if link && !k.linked {
				continue
			}
			if link {
				name = "link to " + name
			}
			t.Run(name, func(t *testing.T) {
				parent := c.Dir
				if parent == "" {
					parent = t.TempDir()
				}
				dir, err := os.MkdirTemp(parent, "output-")
				require.NoError(t, err)
				b := bench{t, c, dir}
				k.test(b, link)
			})
		}
	}
}

var kinds = []struct {
	name   string
	root   bool
	linked bool // a link to it is tried too
	test   func(b bench, link bool)
}{
	{"free name", false, true, func(b bench, link bool) { b.replaced(b.name("out", link), "out") }},
	{"regular file", false, true, func(b bench, link bool) {
		b.old("out")
		b.replaced(b.name("out", link), "out")
	}},
	{"pipe", false, true, func(b bench, link bool) {
		require.NoError(b, unix.Mkfifo(b.path("pipe"), 0o600))
		got := make(chan []byte, 1)
		go func() {
			f, err := os.Open(b.path("pipe")) // waits for the writer
			if err != nil {
				got <- nil
				return
			}
			defer f.Close()
			content, _ := io.ReadAll(f)
			got <- content
		}()
		said, err := b.command.Run(b.name("pipe", link))
		if w, werr := unix.Open(b.path("pipe"), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); werr == nil { // the reader is released
			_ = unix.Close(w)
		}
		content := <-got
		require.NoError(b, err, said)
		b.command.Whole(b, content)
		b.still("pipe", fs.ModeNamedPipe)
	}},
	{"pipe whose reader goes", false, false, func(b bench, link bool) {
		require.NoError(b, unix.Mkfifo(b.path("pipe"), 0o600))
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if f, err := os.Open(b.path("pipe")); err == nil {
				_ = f.Close()
			}
		}()
		// A small output may be in the pipe before its reader goes.
		_, _ = b.command.Run(b.name("pipe", link))
		if w, err := unix.Open(b.path("pipe"), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(w)
		}
		<-gone
		b.still("pipe", fs.ModeNamedPipe)
	}},
	{"directory", false, true, func(b bench, link bool) {
		require.NoError(b, os.Mkdir(b.path("dir"), 0o755))
		b.refused(b.name("dir", link))
		b.still("dir", fs.ModeDir)
	}},
	{"socket", false, false, func(b bench, link bool) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(b, err)
		defer func() { _ = unix.Close(fd) }()
		here, err := os.Open(b.dir) // the path of a socket is short
		require.NoError(b, err)
		defer here.Close()
		require.NoError(b, unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/socket", here.Fd())}))
		b.refused(b.name("socket", link))
		b.still("socket", fs.ModeSocket)
	}},
	{"terminal", false, false, func(b bench, link bool) {
		screen, terminal := b.command.Terminal(b)
		name := terminal.Name()
		if link {
			require.NoError(b, os.Symlink(name, b.path("link")))
			name = b.path("link")
		}
		got := make(chan int, 1)
		go func() {
			content, _ := io.ReadAll(screen) // ends with EIO
			got <- len(content)
		}()
		said, err := b.command.Run(name)
		require.NoError(b, terminal.Close())
		require.NoError(b, err, said)
		select {
		case n := <-got:
			require.Positive(b, n)
		case <-time.After(time.Minute):
			b.Fatal("the terminal is still open")
		}
		if link {
			b.still("link", fs.ModeSymlink)
		}
	}},
	{"null device", true, true, func(b bench, link bool) {
		b.node("null", "c 1 3")
		said, err := b.command.Run(b.name("null", link))
		require.NoError(b, err, said)
		b.still("null", fs.ModeDevice|fs.ModeCharDevice)
	}},
	{"full device", true, false, func(b bench, link bool) {
		b.node("full", "c 1 7")
		said, err := b.command.Run(b.name("full", link))
		require.Error(b, err)
		require.Contains(b, said, "no space left on device")
		b.still("full", fs.ModeDevice|fs.ModeCharDevice)
	}},
	{"block device", true, false, func(b bench, link bool) {
		b.node("block", "b 7 99")
		b.refused(b.name("block", link))
		b.still("block", fs.ModeDevice)
	}},
	{"read-only directory", true, false, func(b bench, link bool) {
		require.NoError(b, os.Mkdir(b.path("mount"), 0o755))
		b.old("mount/out")
		b.shell("mount --bind mount mount && mount -o remount,bind,ro mount")
		defer b.shell("umount mount")
		b.kept(b.name("mount/out", link), "cat mount/out", "read-only file system")
	}},
	{"full disk", true, false, func(b bench, link bool) {
		require.NoError(b, os.Mkdir(b.path("mount"), 0o755))
		b.shell("mount -t tmpfs -o size=16k none mount && printf '%s' '" + old + "' >mount/out && { cat /dev/zero >mount/rest 2>/dev/null || true; }")
		defer b.shell("umount mount")
		b.kept(b.name("mount/out", link), "cat mount/out", "no space left on device")
		b.shell("[ \"$(ls -A mount)\" = \"$(printf 'out\\nrest')\" ]")
	}},
}

func (b bench) path(name string) string { return filepath.Join(b.dir, name) }

// name is what the program is told: the path, or that of a link.
func (b bench) name(name string, link bool) string {
	b.Helper()
	if !link {
		return b.path(name)
	}
	require.NoError(b, os.Symlink(name, b.path("link")))
	return b.path("link")
}

func (b bench) old(name string) {
	b.Helper()
	require.NoError(b, os.WriteFile(b.path(name), []byte(old), 0o644))
}

func (b bench) shell(script string) {
	b.Helper()
	require.NoError(b, b.command.Shell("cd '"+b.dir+"' && "+script))
}

func (b bench) node(name, kind string) {
	b.Helper()
	b.shell("mknod " + name + " " + kind)
}

// replaced asserts that the program writes a regular file, and nothing beside it.
func (b bench) replaced(name, file string) {
	b.Helper()
	said, err := b.command.Run(name)
	require.NoError(b, err, said)
	info, err := os.Lstat(b.path(file))
	require.NoError(b, err)
	require.True(b, info.Mode().IsRegular())
	content, err := os.ReadFile(b.path(file))
	require.NoError(b, err)
	b.command.Whole(b, content)
	b.only(file)
}

// refused asserts that the program says that the name is not a file.
func (b bench) refused(name string) {
	b.Helper()
	said, err := b.command.Run(name)
	require.Error(b, err)
	require.Contains(b, said, "is not a file")
}

// kept asserts that the program fails and that the file there is as it was.
func (b bench) kept(name, cat, why string) {
	b.Helper()
	said, err := b.command.Run(name)
	require.Error(b, err)
	require.Contains(b, strings.ToLower(said), why)
	b.shell("[ \"$(" + cat + ")\" = '" + strings.TrimSpace(old) + "' ]")
}

// still asserts that a name means what it meant, and that nothing is beside it.
func (b bench) still(name string, want fs.FileMode) {
	b.Helper()
	info, err := os.Lstat(b.path(name))
	require.NoError(b, err)
	require.Equal(b, want, info.Mode().Type())
	b.only(name)
}

// only asserts that nothing is in the directory but this, and the link.
func (b bench) only(file string) {
	b.Helper()
	entries, err := os.ReadDir(b.dir)
	require.NoError(b, err)
	for _, e := range entries {
		if e.Name() == "link" {
			require.Equal(b, fs.ModeSymlink, e.Type())
			continue
		}
		require.Equal(b, file, e.Name())
	}
}

// Said is what a program printed, as one text, and its error.
func Said(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return string(out), fmt.Errorf("%s did not run: %w", cmd.Path, err)
	}
	return string(out), err
}
