// Package settings keeps what the device and an operator set for applications: values and
// overrides, services that are switched on or off, and processors that are reserved for
// some. It must not know how any of it is used.
package settings

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/input"
)

// Trusted opens a file of values.d, overrides.d or hooks.d for reading. It refuses what is
// not a file, and what others than its owner, root or this user, can change: what it says
// is done as root. Each part of the path is opened once, and looked at before anything in
// it is. The caller closes the file.
func Trusted(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	at := unix.AT_FDCWD
	defer func() { _ = unix.Close(at) }()
	// Who can change the directory above can put another one in its place.
	parts := []string{filepath.Dir(dir), dir, path}
	for i, part := range parts {
		name := part
		if i > 0 {
			name = filepath.Base(part)
		}
		fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: part, Err: err}
		}
		if at != unix.AT_FDCWD {
			_ = unix.Close(at)
		}
		at = fd
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, &fs.PathError{Op: "stat", Path: part, Err: err}
		}
		kind, want := st.Mode&unix.S_IFMT, uint32(unix.S_IFDIR)
		if i == len(parts)-1 {
			want = unix.S_IFREG
		}
		switch {
		case kind == unix.S_IFLNK:
			return nil, fmt.Errorf("%s is a link: what it leads to is not checked, so put the file itself there", part)
		case st.Mode&0o022 != 0:
			return nil, fmt.Errorf("%s can be changed by others than its owner: chmod go-w", part)
		case st.Uid != 0 && int(st.Uid) != os.Geteuid():
			return nil, fmt.Errorf("%s does not belong to root", part)
		case kind != want:
			return nil, fmt.Errorf("%s is not a file", part)
		}
	}
	// The same file again, whatever has its name now.
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", at))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// readTrusted reads a Trusted file of at most most bytes.
func readTrusted(path string, most int64) ([]byte, error) {
	f, err := Trusted(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return input.Bounded(f, path, most)
}
