package source

import (
	"io"
	"os"

	"github.com/mender-app/mender-app/artifact/image"
)

// openCompressed opens a layer's blob and decompresses it. It looks at the first
// bytes and not at the media type, which is wrong in some registries.
func openCompressed(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	z, err := image.Decompress(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &unpacked{z, f}, nil
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
