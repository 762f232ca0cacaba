package lz

import (
	"errors"
	"fmt"
	"io"

	"github.com/mender-app/mender-app/delta/internal/readahead"
)

// A File has bytes that have left the window in memory. It is empty at first.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// ErrFile is wrapped by the errors of a File.
var ErrFile = errors.New("temporary file of earlier literals")

const (
	// farBlock is how many bytes are written to the file at a time.
	farBlock = 64 << 10
	// kept is how many bytes stay in memory alone. What is not in the file yet must
	// not leave the window while a piece is decoded.
	kept = Window - 2*farBlock
)

// FileSize returns the greatest size of the file for a delta with that many literals
// in bulk, in bytes.
func FileSize(literals int64) int64 {
	return min(max(0, literals-kept+farBlock), FarWindow)
}

// far has the bytes that are farther back than the window in memory. The file is a
// ring of FarWindow bytes.
type far struct {
	open  func() (File, error)
	most  int64 // bytes that the file may have
	file  File
	size  int64  // of the file
	done  uint32 // the place behind the bytes in the file
	ahead readahead.Reader
	match [MaxMatch]byte
}

// save writes what must leave memory soon: pos is the place behind the last byte of
// the window w.
func (f *far) save(w *[Window]byte, pos uint32) error {
	for pos-f.done >= kept {
		at := int64(f.done & (FarWindow - 1))
		if at+farBlock > f.most {
			return ErrDamaged
		}
		if f.file == nil {
			var err error
			if f.file, err = f.open(); err != nil {
				return fmt.Errorf("%w: %w", ErrFile, err)
			}
		}
		if _, err := f.file.WriteAt(w[f.done&(Window-1):][:farBlock], at); err != nil {
			return fmt.Errorf("%w: %w", ErrFile, err)
		}
		f.done += farBlock
		f.size = max(f.size, at+farBlock)
		f.ahead.Reset(f.file, f.size) // what it has read may have been replaced
	}
	return nil
}

// read returns n bytes from a place on that is in the file. They are valid until the
// next call.
func (f *far) read(n, place uint32) ([]byte, error) {
	b := f.match[:n]
	at := place & (FarWindow - 1)
	k := min(n, FarWindow-at)
	for _, part := range [2]struct {
		b  []byte
		at uint32
	}{{b[:k], at}, {b[k:], 0}} {
		if got, err := f.ahead.ReadAt(part.b, int64(part.at)); got < len(part.b) {
			return nil, fmt.Errorf("%w: %w", ErrFile, errors.Join(err, io.ErrUnexpectedEOF))
		}
	}
	return b, nil
}
