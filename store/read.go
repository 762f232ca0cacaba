package store

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// file is a file open for reading. An os.File takes twelve system calls for a small
// file, this type four: a status of all applications reads hundreds.
type file struct {
	path string
	fd   int
	size int64
}

// openFile opens a regular file.
func openFile(path string) (*file, error) {
	fd, err := again(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		_ = syscall.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		_ = syscall.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	return &file{path, fd, st.Size}, nil
}

func (f *file) close() { _ = syscall.Close(f.fd) }

// read reads the file from an offset to its end, which is where it was when the file was opened.
func (f *file) read(from int64) ([]byte, error) {
	data := make([]byte, f.size-from)
	for n := 0; n < len(data); {
		m, err := again(func() (int, error) { return syscall.Pread(f.fd, data[n:], from+int64(n)) })
		if err == nil && m == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: f.path, Err: err}
		}
		n += m
	}
	return data, nil
}

// again repeats a system call that a signal interrupted.
func again(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
