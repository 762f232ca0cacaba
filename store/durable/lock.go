package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// HeldError reports that another process holds a lock file.
type HeldError struct {
	Path   string
	Holder string // what the process wrote into the file; "unknown" if nothing
}

func (e *HeldError) Error() string { return fmt.Sprintf("%s is held by %s", e.Path, e.Holder) }

// pollLock is the time between two attempts to take a lock.
const pollLock = 50 * time.Millisecond

// WaitLock is Lock, but waits while another process holds the file. If ctx ends first,
// the error is the *HeldError.
func WaitLock(ctx context.Context, path, who string) (release func(), err error) {
	for {
		release, err := Lock(path, who)
		var held *HeldError
		if !errors.As(err, &held) {
			return release, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pollLock):
		}
	}
}

// Lock takes the lock file at path for this process, without waiting: the error
// is a *HeldError while another process holds it. The kernel holds the lock
// (flock), so a process that was killed holds none. who is written to the file,
// for processes that find the lock held.
//
// Any user who can open a file can lock it, so only this user can open it (0600).
// Earlier versions made files that others can open. Such a file is replaced,
// because another user may still have it open; a lock that another user's process
// holds on it is ignored.
func Lock(path, who string) (release func(), err error) {
	var held []*os.File
	closeAll := func() {
		for _, f := range held {
			_ = f.Close()
		}
	}
	for {
		f, st, err := openLock(path)
		if err != nil {
			closeAll()
			return nil, err
		}
		if !private(st) {
			_ = f.Close()
			old, err := replaceLock(path)
			if err != nil {
				closeAll()
				return nil, err
			}
			if old != nil {
				held = append(held, old) // an earlier version may wait for this file
			}
			continue
		}
		if err := tryFlock(f); err != nil {
			closeAll()
			return nil, err
		}
		if now, err := os.Lstat(path); err != nil || !os.SameFile(st, now) {
			_ = f.Close() // it was replaced before it was locked
			continue
		}
		held = append(held, f)
		// Name the holder for processes that wait; nothing depends on it.
		if err := f.Truncate(0); err == nil {
			_, _ = f.WriteAt(fmt.Appendf(nil, "process %d, %s\n", os.Getpid(), who), 0)
		}
		return func() { _ = f.Truncate(0); closeAll() }, nil
	}
}

// PrivateDir creates the directory dir, which other users may not enter (0700),
// and its missing parents, which they may enter. It makes an existing dir private.
func PrivateDir(dir string) error {
	if err := MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := MkdirAll(dir, 0o700); err != nil {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil || private(st) {
		return err
	}
	return makePrivate(dir, 0o700)
}

// private reports whether only this user can open a file.
func private(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid() && st.Mode().Perm()&0o077 == 0
}

func makePrivate(path string, perm fs.FileMode) error {
	if err := os.Chown(path, os.Geteuid(), -1); err != nil {
		return err
	}
	return os.Chmod(path, perm)
}

func openLock(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// tryFlock takes the kernel's lock of an open file. If it fails, it closes the
// file.
func tryFlock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	defer f.Close()
	if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	text, _ := io.ReadAll(io.LimitReader(f, 200))
	holder := string(bytes.TrimSpace(text))
	if holder == "" {
		holder = "unknown"
	}
	return &HeldError{Path: f.Name(), Holder: holder}
}

// replaceLock replaces a lock file that other users can open with a private one. It
// returns the old file, locked, so that an earlier version that opened it does not
// get its lock. It returns nil if another user's process holds that lock, or if
// another process has replaced the file.
func replaceLock(path string) (old *os.File, err error) {
	// Only one process may do this at a time; otherwise two could each lock a
	// file of their own. No other user can open the guard.
	guard, _, err := openLock(filepath.Join(filepath.Dir(path), TempPrefix+filepath.Base(path)))
	if err == nil {
		defer guard.Close()
		err = unix.Flock(int(guard.Fd()), unix.LOCK_EX)
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return nil, err
	}
	old, st, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if private(st) {
		return nil, old.Close()
	}
	if err := tryFlock(old); err != nil {
		var held *HeldError
		if !errors.As(err, &held) || !heldByOtherUser(st) {
			return nil, err
		}
		old = nil
	}
	f, err := createTemp(filepath.Dir(path), TempPrefix+filepath.Base(path)+"-*")
	if err == nil {
		err = os.Rename(f.Name(), path)
		_ = f.Close()
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = makePrivate(path, 0o600) // better than being unable to roll back on a full disk
	}
	if err != nil && old != nil {
		_ = old.Close()
		old = nil
	}
	return old, err
}

// heldByOtherUser reports whether a process of another user holds the lock of a
// file. It is false if the kernel does not say.
func heldByOtherUser(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	data, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false
	}
	found := false
	for line := range strings.Lines(string(data)) {
		// 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF (proc(5))
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5][strings.LastIndexByte(fields[5], ':')+1:] != strconv.FormatUint(uint64(sys.Ino), 10) {
			continue
		}
		found = true
		uid, err := realUser(fields[4])
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			// The process that took the lock has exited and a child holds it.
			// Our programs have no children that inherit it.
			continue
		}
		if err != nil || uid == os.Getuid() {
			return false
		}
	}
	return found
}

// realUser returns the real user ID of a process.
func realUser(pid string) (int, error) {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "Uid:"); ok {
			if fields := strings.Fields(value); len(fields) > 0 {
				return strconv.Atoi(fields[0])
			}
		}
	}
	return 0, errors.New("no user ID in the process's status")
}

// Held reports whether another process holds a lock file. It writes nothing. It
// is false if the file cannot be opened. A read-only file system is enough.
func Held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	var held *HeldError
	if errors.As(tryFlock(f), &held) {
		return true
	}
	_ = f.Close()
	return false
}
