package fulltree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// attributes gives an entry the owner, the extended attributes, the permissions and the
// times of another one of the same kind. Links are not followed.
func attributes(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: from, Err: err}
	}
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	link := st.Mode&unix.S_IFMT == unix.S_IFLNK
	if !link { // after the owner, because a change of owner clears bits
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return &fs.PathError{Op: "chmod", Path: to, Err: err}
		}
	}
	if err := extended(from, to); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimensat", Path: to, Err: err}
	}
	return nil
}

// extended makes the extended attributes of an entry those of another one.
func extended(from, to string) error {
	have, err := names(from)
	if err != nil {
		return err
	}
	old, err := names(to)
	if err != nil {
		return err
	}
	for name := range old {
		if !have[name] {
			if err := unix.Lremovexattr(to, name); err != nil && !errors.Is(err, unix.ENODATA) {
				return &fs.PathError{Op: "removexattr " + name, Path: to, Err: err}
			}
		}
	}
	for name := range have {
		value := make([]byte, maxValue)
		n, err := unix.Lgetxattr(from, name, value)
		if err != nil {
			return &fs.PathError{Op: "getxattr " + name, Path: from, Err: err}
		}
		if err := unix.Lsetxattr(to, name, value[:n], 0); err != nil {
			return &fs.PathError{Op: "setxattr " + name, Path: to, Err: err}
		}
	}
	return nil
}

// maxValue is the kernel's bound of a value, and of all names.
const maxValue = 64 << 10

// names are the names of an entry's extended attributes.
func names(path string) (map[string]bool, error) {
	n, err := unix.Llistxattr(path, nil)
	if err == nil && n == 0 || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	list := make([]byte, maxValue)
	if err == nil {
		n, err = unix.Llistxattr(path, list)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "listxattr", Path: path, Err: err}
	}
	out := map[string]bool{}
	for name := range bytes.SplitSeq(list[:n], []byte{0}) {
		if len(name) > 0 {
			out[string(name)] = true
		}
	}
	return out, nil
}
