package image

import (
	"fmt"
	"hash"
	"io"

	"github.com/mender-app/mender-app/artifact/digest"
)

// verifier returns an error at the end of a stream whose size or digest is not the
// announced one.
type verifier struct {
	io.ReadCloser
	hash hash.Hash
	want Digest
	size int64 // -1: unknown
	n    int64
	err  error
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.ReadCloser.Read(p)
	v.hash.Write(p[:n])
	v.n += int64(n)
	switch {
	case v.size >= 0 && v.n > v.size:
		n -= int(v.n - v.size) // never pass on more than was announced
		err = fmt.Errorf("%w: more than the %d bytes announced", ErrMismatch, v.size)
	case err != io.EOF:
	case v.size >= 0 && v.n < v.size:
		err = fmt.Errorf("%w: %d bytes, %d were announced", ErrMismatch, v.n, v.size)
	default:
		if got := digest.OfHash(v.hash); got != v.want {
			err = fmt.Errorf("%w: it is %s", ErrMismatch, got)
		}
	}
	if err != nil {
		v.err = err
	}
	return n, err
}
