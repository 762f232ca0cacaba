// Package durable writes, renames and syncs the files that must survive a power
// cut. No other package does so for persistent state. It must not know what the files
// mean.
//
// A function that returns nil has made its effect durable: the file's data,
// its name and the directory that holds the name have all been synced, in that
// order. A crash in the middle leaves the old state or the new one. It may leave
// files or directories whose names start with [TempPrefix]; [Sweep] removes those.
// Only [CopyTree] and [LinkTree] need a [SyncTree] after them.
//
// [Lock] and [PrivateDir] keep other processes and other users out.
//
// Every step passes a named fault point (see [Point]), so that a test can stop
// the program exactly there.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/scratch"
)

// TempPrefix begins the names of the temporary files and directories that this
// package creates. They never hold state.
const TempPrefix = ".tmp-"

// WriteFile replaces the content of path atomically and durably. The directory
// must exist.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	if err := Point("write." + filepath.Base(path)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit(path, perm)
}

// Append adds data to the end of a log file, and creates the file and its directory if
// they are missing. Nothing is synced: a power cut may lose the data. If the file
// would exceed limit, Append leaves it unchanged.
func Append(path string, data []byte, limit int64) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil || st.Size()+int64(len(data)) > limit {
		return err
	}
	_, err = f.Write(data)
	return err
}

// MkdirAll creates dir and its missing parents. It is idempotent, and syncs the
// parent of each directory it made.
func MkdirAll(dir string, perm fs.FileMode) error {
	st, err := os.Stat(dir)
	if err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	if err := Point("mkdir." + filepath.Base(dir)); err != nil {
		return fmt.Errorf("mkdir %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(parent)
}

// Remove deletes one file, symbolic link or empty directory. A missing one is not an
// error.
func Remove(path string) error {
	if err := Point("remove." + filepath.Base(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	err := os.Remove(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	// An earlier removal may not be durable yet. If the directory is gone, it is.
	if err := SyncDir(filepath.Dir(path)); err != nil && !(missing && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	return Point("removed." + filepath.Base(path))
}

// RemoveAll deletes a tree. The tree is renamed first, so that a partly deleted
// tree is never seen under its name. A missing tree is not an error.
func RemoveAll(path string) error {
	dir, base := filepath.Split(filepath.Clean(path))
	if dir == "" {
		dir = "."
	}
	if err := Point("remove." + base); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if _, err := os.Lstat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	doomed, claim, err := makeTemp(dir, TempPrefix+"removed-*")
	if err != nil {
		return err
	}
	defer claim.Close()
	if err := os.Rename(path, filepath.Join(doomed, base)); err != nil {
		_ = os.Remove(doomed)
		return err
	}
	if err := SyncDir(dir); err != nil {
		return err
	}
	if err := Point("removed." + base); err != nil {
		return err
	}
	return os.RemoveAll(doomed)
}

// Rename moves a file or directory and syncs both directories. It replaces an
// existing file, never a directory that is not empty.
func Rename(from, to string) error {
	if err := Point("move." + filepath.Base(from)); err != nil {
		return fmt.Errorf("rename %s: %w", from, err)
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		if err := SyncDir(filepath.Dir(from)); err != nil {
			return err
		}
	}
	return Point("moved." + filepath.Base(from))
}

// Symlink makes link point to target. It replaces an existing link atomically, and
// refuses to replace anything that is not a symbolic link. If the link already
// points to target, nothing is written.
func Symlink(target, link string) error {
	base := filepath.Base(link)
	if err := Point("link." + base); err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	switch st, err := os.Lstat(link); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case st.Mode()&fs.ModeSymlink == 0:
		return &fs.PathError{Op: "symlink", Path: link, Err: fs.ErrExist}
	default:
		if now, err := os.Readlink(link); err == nil && now == target {
			// A crash may have come before the link was durable.
			return SyncDir(filepath.Dir(link))
		}
	}
	temp, err := tempLink(target, link)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, link); err != nil {
		_ = os.Remove(temp)
		return err
	}
	if err := SyncDir(filepath.Dir(link)); err != nil {
		return err
	}
	return Point("linked." + base)
}

// tempLink makes a symbolic link beside link under a name that is free.
func tempLink(target, link string) (string, error) {
	dir, base := filepath.Split(link)
	for n := 0; ; n++ {
		temp := filepath.Join(dir, fmt.Sprintf("%s%s-%d-%d", TempPrefix, base, os.Getpid(), n))
		err := os.Symlink(target, temp)
		if err == nil {
			return temp, nil
		}
		if !errors.Is(err, fs.ErrExist) || n == 100 {
			return "", err
		}
	}
}

// ReplaceDirWithLink replaces the directory dir with a symbolic link to target, and
// moves the directory to aside. If the file system supports it, the two are exchanged
// in one step. Otherwise dir does not exist for an instant, so a caller must be able
// to continue from there after a crash.
func ReplaceDirWithLink(dir, target, aside string) error {
	base := filepath.Base(dir)
	if err := Point("link." + base); err != nil {
		return err
	}
	temp, err := tempLink(target, dir)
	if err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		// temp now names the directory.
		if err := Point("exchanged." + base); err != nil {
			return err
		}
		if err := os.Rename(temp, aside); err != nil {
			return err
		}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		if err := os.Rename(dir, aside); err != nil {
			_ = os.Remove(temp)
			return err
		}
		if err := Point("exchanged." + base); err != nil {
			return err
		}
		if err := os.Rename(temp, dir); err != nil {
			return err
		}
	default:
		_ = os.Remove(temp)
		return &os.LinkError{Op: "exchange", Old: temp, New: dir, Err: err}
	}
	if err := SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(aside)); err != nil {
		return err
	}
	return Point("linked." + base)
}

// MoveBehindLink moves the directory dir to another path of the file system, and leaves a
// symbolic link to it, with a relative target. Nothing but a link may be at to. If the file
// system supports it, the two are exchanged in one step. Otherwise dir does not exist for an
// instant.
func MoveBehindLink(dir, to string) error {
	base := filepath.Base(dir)
	if err := Point("link." + base); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(dir), to)
	if err != nil {
		return err
	}
	// An earlier call may have left its link.
	if st, err := os.Lstat(to); err == nil && st.Mode()&fs.ModeSymlink == 0 {
		return &fs.PathError{Op: "move", Path: to, Err: fs.ErrExist}
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, to); err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, to, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		if err = os.Remove(to); err == nil {
			err = os.Rename(dir, to)
		}
		if err == nil {
			err = Point("exchanged." + base)
		}
		if err == nil {
			err = os.Symlink(target, dir)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: to, New: dir, Err: err}
	}
	if err := SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return Point("linked." + base)
}

// SyncTree makes every file and directory below dir durable, dir itself and
// its name included. Symbolic links are not followed.
func SyncTree(dir string) error {
	if err := Point("sync." + filepath.Base(dir)); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() && !d.IsDir() {
			return nil
		}
		return syncPath(path)
	})
	if err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return Point("synced." + filepath.Base(dir))
}

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	if dir == "" {
		dir = "."
	}
	return syncPath(dir)
}

func syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) { // path is a link to a directory
		f, err = os.Open(path)
	}
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		// EINVAL: a file system that cannot sync this kind of file.
		_ = f.Close()
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return f.Close()
}

// Sweep removes what an interrupted call left in dir: names with
// [TempPrefix]. It does not look into sub-directories. Files that another process writes
// with this package stay. The caller must be the only one to make symbolic links and trees
// in dir.
func Sweep(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if len(name) > len(TempPrefix) && name[:len(TempPrefix)] == TempPrefix {
				if scratch.Claimed(d, name) {
					continue
				}
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
