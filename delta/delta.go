// Package delta has the types that describe deep deltas. A deep delta is one file.
// From it and the content of older images, the objects of a new image (its config
// and its layer tars) are rebuilt byte for byte. Package encoder makes the delta on
// the build host; package decoder applies it on the device.
//
// A delta works on layer tars file by file, and on ELF files address by address.
// The packages know nothing of Docker, containerd, Kubernetes or Mender: the old
// content comes through [Old], the rebuilt objects go to a [Sink], and both are
// named by the SHA-256 of their uncompressed content. FORMAT.md describes the
// bytes; this package reads and writes the head of a delta.
package delta

import (
	"io"

	"github.com/mender-app/mender-app/artifact/digest"
)

// Digest names uncompressed content: "sha256:" and 64 lower-case hex digits. A
// layer's digest is its diffID.
type Digest = digest.Digest

// Kind says how an object is split into contents.
type Kind string

const (
	// Tar is a layer tar, which is split into its members. On a device only its
	// headers and the contents of its regular files are available ([Old]).
	Tar Kind = "tar"
	// Blob is not split: an image config or any single file.
	Blob Kind = "blob"
)

// Object is one piece of content on the build host.
type Object struct {
	Digest Digest
	Size   int64
	Kind   Kind
	// Open returns the uncompressed content. It may be called several times,
	// even concurrently. If the result is also an io.ReaderAt (an *os.File), the
	// encoder reads it in place; otherwise it copies it to a temporary file.
	Open func() (io.ReadCloser, error)
}

// Image is a named list of objects, in order: for a container image its config,
// then its layers, base first.
type Image struct {
	Name    string
	Objects []Object
}
