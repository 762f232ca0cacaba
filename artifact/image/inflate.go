package image

import (
	"bufio"
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
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), skippable(head):
		return compressZstd, nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return "", fmt.Errorf("%w: bzip2 compression is not supported: use gzip or zstd", ErrFormat)
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return "", fmt.Errorf("%w: xz compression is not supported: use gzip or zstd", ErrFormat)
	}
	return "", nil
}

// skippable reports whether a stream begins with a skippable frame of zstd (RFC 8878,
// 3.1.2), as pzstd writes it.
func skippable(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18
}

// Decompress returns the content of a layer's blob or of an archive, decompressed if its
// first bytes say that it is compressed. It is for build hosts: it takes up to 128 MiB of
// memory. What is malformed or in a form that is not supported is an ErrFormat.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	buf := bufio.NewReaderSize(r, 1<<16)
	head, err := buf.Peek(sniffLen)
	if err != nil && err != io.EOF {
		return nil, err
	}
	compression, err := sniff(head)
	if err != nil {
		return nil, err
	}
	return inflate(buf, compression, hostWindow)
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
		m, err := newMembers(r)
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrFormat, err)
		}
		return formatted{m, m.zr}, nil
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

// members reads a gzip stream of several members, with zeros after the last one: gzip
// ignores them, and tools that write blocks add them.
type members struct {
	zr  *gzip.Reader
	buf *bufio.Reader // what zr reads
	end bool
}

func newMembers(r io.Reader) (*members, error) {
	buf := bufio.NewReaderSize(r, 1<<12)
	zr, err := gzip.NewReader(buf) // it reads no byte past a member from an io.ByteReader
	if err != nil {
		return nil, err
	}
	zr.Multistream(false)
	return &members{zr: zr, buf: buf}, nil
}

func (m *members) Read(p []byte) (int, error) {
	for !m.end {
		n, err := m.zr.Read(p)
		if err != io.EOF {
			return n, err
		}
		if err := m.next(); err != nil {
			return n, err
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

// next begins the next member, or reads what follows the last one.
func (m *members) next() error {
	head, err := m.buf.Peek(1)
	if err == nil && head[0] != 0 {
		if err := m.zr.Reset(m.buf); err != nil {
			return err
		}
		m.zr.Multistream(false)
		return nil
	}
	for err == nil {
		var c byte
		if c, err = m.buf.ReadByte(); err == nil && c != 0 {
			return gzip.ErrHeader
		}
	}
	if err != io.EOF {
		return err
	}
	m.end = true
	return nil
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
