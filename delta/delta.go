// Package delta has the nouns of deep deltas. A deep delta is one file from which
// the objects of a new image (its config and its layer tars) are rebuilt, byte
// for byte, out of the content of older images. The package encoder makes it on
// the build host, the package decoder applies it on the device.
//
// A delta looks into layer tars, file by file, and into ELF files, address by
// address. The packages know nothing of Docker, containerd, Kubernetes or Mender:
// the old content comes through [Old], the rebuilt objects go to a [Sink], and
// both are named by the SHA-256 of their uncompressed content. FORMAT.md
// describes the bytes; this package reads and writes the head of a delta.
package delta

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Digest names uncompressed content: "sha256:" and 64 lower-case hex digits. A
// layer's digest is its diffID.
type Digest string

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest {
	return DigestOfSum(sha256.Sum256(b))
}

// DigestOfSum returns the digest whose SHA-256 is known.
func DigestOfSum(sum [sha256.Size]byte) Digest {
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// Sum returns the SHA-256 that the digest names. The error says that it is not a
// digest.
func (d Digest) Sum() (sum [sha256.Size]byte, err error) {
	h, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(h) != 2*sha256.Size || strings.ToLower(h) != h {
		return sum, fmt.Errorf("%q is not a sha256 digest", string(d))
	}
	_, err = hex.Decode(sum[:], []byte(h))
	return sum, err
}

// Kind says how an object is taken apart.
type Kind string

const (
	// Tar is a layer tar, taken apart by members. On a device only its headers
	// and the contents of its regular files are at hand ([Old]).
	Tar Kind = "tar"
	// Blob is opaque: an image config or any single file.
	Blob Kind = "blob"
)

// Object is one piece of content on the build host.
type Object struct {
	Digest Digest
	Size   int64
	Kind   Kind
	// Open returns the uncompressed content. It may be called several times,
	// also at once. Where what it returns is an io.ReaderAt too (an *os.File),
	// the encoder reads it in place; otherwise it copies it to a temporary file.
	Open func() (io.ReadCloser, error)
}

// Image is a named list of objects, in order: for a container image its config,
// then its layers, base first.
type Image struct {
	Name    string
	Objects []Object
}
