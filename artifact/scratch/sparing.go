package scratch

import (
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Sparing returns a writer to a file for content whose size nobody knows, or somebody else
// says: others use the disk too, so a sixteenth of its free space stays. Then the error is
// that of a full disk.
func Sparing(f *os.File) io.Writer {
	s := &sparing{file: f}
	if free, err := s.free(); err == nil {
		s.keep = free / 16
	}
	return s
}

type sparing struct {
	file *os.File
	keep int64
}

func (s *sparing) free() (int64, error) {
	var disk unix.Statfs_t
	err := unix.Fstatfs(int(s.file.Fd()), &disk)
	return int64(disk.Bavail) * int64(disk.Bsize), err
}

func (s *sparing) Write(p []byte) (int, error) {
	if free, err := s.free(); err == nil && free-int64(len(p)) < s.keep {
		return 0, &fs.PathError{Op: "write", Path: s.file.Name(), Err: unix.ENOSPC}
	}
	return s.file.Write(p)
}
