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
	"io"

	"github.com/mender-app/mender-app/artifact/digest"
)

// Digest names uncompressed content: "sha256:" and 64 lower-case hex digits. A
// layer's digest is its diffID.
type Digest = digest.Digest

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
