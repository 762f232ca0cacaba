package image

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// The compressions of layers and archives.
const (
	compressGzip = "gzip"
	compressZstd = "zstd"
)

// sniffLen is the number of bytes that sniff needs.
const sniffLen = 6

// sniff returns the compression of a stream by its first bytes; "" is none.
func sniff(head []byte) (string, error) {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return compressGzip, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return compressZstd, nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return "", fmt.Errorf("%w: bzip2 compression is not supported", ErrFormat)
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return "", fmt.Errorf("%w: xz compression is not supported", ErrFormat)
	}
	return "", nil
}

// The greatest windows of zstd that are accepted. containerd and BuildKit write
// windows of 8 MiB by default and of 32 MiB at most. zstd --long and --ultra write
// windows of up to 128 MiB, which only a build host accepts.
const (
	deviceWindow = 32 << 20
	hostWindow   = 128 << 20
)

// inflate returns a reader of the decompressed content of r.
func inflate(r io.Reader, compression string, window uint64) (io.ReadCloser, error) {
	switch compression {
	case compressGzip:
		zr, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrFormat, err)
		}
		return formatted{zr, zr}, nil
	case compressZstd:
		zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return nil, fmt.Errorf("%w: zstd: %w", ErrFormat, err)
		}
		rc := zr.IOReadCloser()
		return formatted{rc, rc}, nil
	}
	return io.NopCloser(r), nil
}

// formatted turns a decompressor's errors into ErrFormat.
type formatted struct {
	io.Reader
	io.Closer
}

func (f formatted) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return n, err
}

// closers closes all of its elements and returns the first error.
type closers struct {
	io.Reader
	list []io.Closer
}

func (c closers) Close() error {
	var first error
	for _, x := range c.list {
		if err := x.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
