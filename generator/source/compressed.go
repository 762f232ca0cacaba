package source

import (
	"bufio"
	"bytes"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// openCompressed opens a layer's blob and decompresses it. It looks at the first
// bytes and not at the media type, which is wrong in some registries.
func openCompressed(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	buf := bufio.NewReaderSize(f, 1<<16)
	head, _ := buf.Peek(4) // a shorter blob is not compressed
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buf)
		if err != nil {
			f.Close()
			return nil, err
		}
		return &unpacked{z, f}, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buf, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			f.Close()
			return nil, err
		}
		return &unpacked{z.IOReadCloser(), f}, nil
	}
	return &unpacked{io.NopCloser(buf), f}, nil
}

type unpacked struct {
	io.ReadCloser
	file *os.File
}

func (u *unpacked) Close() error {
	err := u.ReadCloser.Close()
	if cerr := u.file.Close(); err == nil {
		err = cerr
	}
	return err
}
