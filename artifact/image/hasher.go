package image

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	"github.com/mender-app/mender-app/artifact/digest"
)

// hasher reads the stored bytes of a layer and hashes the uncompressed tar.
type hasher struct {
	raw  io.Reader
	hash hash.Hash
	size int64 // unpacked
	max  int64

	// For compressed bytes only: pipe takes them to a decompressor in another
	// goroutine, which closes done at its end.
	pipe *io.PipeWriter
	done chan struct{}
	err  error // set when done is closed
}

func newHasher(raw io.Reader, compression string, most int64) (*hasher, error) {
	h := &hasher{raw: raw, hash: sha256.New(), max: most}
	if compression == "" {
		return h, nil
	}
	pr, pw := io.Pipe()
	h.pipe, h.done = pw, make(chan struct{})
	go func() {
		defer close(h.done)
		h.err = h.unpack(pr, compression)
		// After an error the next write to the pipe, and so the next Read, fails
		// with this error.
		pr.CloseWithError(h.err)
	}()
	return h, nil
}

func (h *hasher) unpack(r io.Reader, compression string) error {
	z, err := inflate(r, compression, deviceWindow)
	if err != nil {
		return err
	}
	defer z.Close()
	if h.size, err = io.Copy(h.hash, io.LimitReader(z, h.max+1)); err != nil {
		return err
	}
	if h.size > h.max {
		return h.over()
	}
	_, err = io.Copy(io.Discard, r)
	return err
}

func (h *hasher) over() error {
	return fmt.Errorf("%w: a layer of more than %d bytes", ErrTooLarge, h.max)
}

func (h *hasher) Read(p []byte) (int, error) {
	n, err := h.raw.Read(p)
	if n == 0 {
		return n, err
	}
	if h.pipe != nil {
		if _, werr := h.pipe.Write(p[:n]); werr != nil {
			return n, werr
		}
		return n, err
	}
	h.hash.Write(p[:n])
	if h.size += int64(n); h.size > h.max {
		return n, h.over()
	}
	return n, err
}

// finish reads the rest and returns the digest and size of the uncompressed tar.
func (h *hasher) finish() (Digest, int64, error) {
	if _, err := io.Copy(io.Discard, h); err != nil {
		return "", 0, err
	}
	if h.pipe != nil {
		h.pipe.Close()
		h.pipe = nil
		<-h.done
		if h.err != nil {
			return "", 0, h.err
		}
	}
	return digest.OfHash(h.hash), h.size, nil
}

// stop ends the decompressor if it is running.
func (h *hasher) stop() {
	if h.pipe != nil {
		h.pipe.CloseWithError(io.ErrClosedPipe)
		<-h.done
	}
}
