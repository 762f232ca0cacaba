package fulltree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// attributes gives an entry the owner, the extended attributes, the permissions and the
// times of another one of the same kind, which is not a link. The paths are those of open
// descriptors.
func attributes(from, to string) error {
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	if err := os.Chown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	// After the owner, because a change of owner clears bits.
	if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: to, Err: err}
	}
	if err := extended(from, to); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, to, times, 0); err != nil {
		return &fs.PathError{Op: "utimensat", Path: to, Err: err}
	}
	return nil
}

// linkAttributes gives a symbolic link the owner of another one, and its times from Linux
// 5.8 on.
func linkAttributes(old, made *entry) error {
	if err := unix.Fchownat(made.fd, "", int(old.st.Uid), int(old.st.Gid), unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "chown", Path: made.path, Err: err}
	}
	times := []unix.Timespec{old.st.Atim, old.st.Mtim}
	err := unix.UtimesNanoAt(made.fd, "", times, unix.AT_EMPTY_PATH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "utimensat", Path: made.path, Err: err}
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
			if err := unix.Removexattr(to, name); err != nil && !errors.Is(err, unix.ENODATA) {
				return &fs.PathError{Op: "removexattr " + name, Path: to, Err: err}
			}
		}
	}
	for name := range have {
		value := make([]byte, maxValue)
		n, err := unix.Getxattr(from, name, value)
		if err != nil {
			return &fs.PathError{Op: "getxattr " + name, Path: from, Err: err}
		}
		if err := unix.Setxattr(to, name, value[:n], 0); err != nil {
			return &fs.PathError{Op: "setxattr " + name, Path: to, Err: err}
		}
	}
	return nil
}

// maxValue is the kernel's bound of a value, and of all names.
const maxValue = 64 << 10

// names are the names of an entry's extended attributes.
func names(path string) (map[string]bool, error) {
	n, err := unix.Listxattr(path, nil)
	if err == nil && n == 0 || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	list := make([]byte, maxValue)
	if err == nil {
		n, err = unix.Listxattr(path, list)
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
