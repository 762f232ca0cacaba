// Package delta makes and applies deep deltas: one file from which the objects
// of a new image (its config and its layer tars) are rebuilt, byte for byte,
// out of the content of older images.
//
// It looks into layer tars, file by file, and into ELF files, address by
// address. It knows nothing of Docker, containerd, Kubernetes or Mender: the old
// content comes through [Old], the rebuilt objects go to a [Sink], and both are
// named by the SHA-256 of their uncompressed content. FORMAT.md describes the
// bytes.
//
// The decoder reads its delta strictly forward, needs no temporary file, and
// its memory does not depend on the size of the image.
package delta

import (
	"context"
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
	return digestOf(sha256.Sum256(b))
}

func digestOf(sum [sha256.Size]byte) Digest {
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

func (d Digest) raw() (sum [sha256.Size]byte, err error) {
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
	// Encode reads it in place; otherwise it is copied to Options.TempDir.
	Open func() (io.ReadCloser, error)
}

// Image is a named list of objects, in order: for a container image its config,
// then its layers, base first.
type Image struct {
	Name    string
	Objects []Object
}

// Options steer Encode. The zero value is ready to use.
type Options struct {
	// Workers is the number of files looked at in parallel; 0 means one a CPU.
	// It does not change the result.
	Workers int
	// Memory bounds the encoder's working memory in bytes, roughly; 0 means
	// 900 MiB. It does not change the result unless a single file of the window
	// size does not fit.
	Memory int64
	// TempDir holds copies of objects that cannot be read in place; "" means
	// the system's.
	TempDir string
	// FilesOnly makes a delta that reads the contents of old files alone, no
	// headers of old tars: for stores that keep what a layer was unpacked to and
	// not its tar. Such a delta is up to a fifth larger.
	FilesOnly bool
	// Progress, if set, is called now and then, never at once, with the number
	// of bytes of the new image that are done and that are to be done in all.
	Progress func(done, total int64)
}

// Encoding says how an object of the new image travels.
type Encoding string

const (
	// Omitted: the same object is in an old image; the delta only names it.
	Omitted Encoding = "omitted"
	// Delta: rebuilt with the help of old content.
	Delta Encoding = "delta"
	// Verbatim: the delta holds it whole and reads nothing old for it.
	Verbatim Encoding = "verbatim"
)

// ObjectInfo describes one object of the new image.
type ObjectInfo struct {
	Index    int // in the new image
	Digest   Digest
	Size     int64
	Kind     Kind
	Encoding Encoding
}

// Base is an old object that the decoder reads.
type Base struct {
	Image  string // name of the old image it was found in, for messages
	Digest Digest
	Size   int64
	Kind   Kind
	// Headers says that the headers of the tar are read (Old.Headers), and not
	// the contents of its files alone.
	Headers bool
}

// Header is what a delta says about itself before any content.
type Header struct {
	Image    string // name of the new image
	Objects  []ObjectInfo
	Bases    []Base
	Features []string
	// Memory is the most that Apply allocates, in bytes, beside what Old and
	// the sinks need.
	Memory int64
	// Temp is the size of the temporary files that Apply needs, in bytes.
	Temp int64
}

// ObjectReport says what became of one object of the new image.
type ObjectReport struct {
	ObjectInfo
	// Bytes of the delta by kind of stream, compressed. They add up to what the
	// object costs.
	Bytes map[string]int64
	// Files counts members by treatment: same, copied, changed, new.
	Files map[string]int
}

// Total returns the bytes of the delta that the object costs.
func (r ObjectReport) Total() (n int64) {
	for _, b := range r.Bytes {
		n += b
	}
	return n
}

// Report is what Encode did.
type Report struct {
	Header  Header
	Objects []ObjectReport
	Size    int64 // of the delta
	// OldFiles is the number of old files the decoder reads.
	OldFiles int64
}

// File is an old file, open for reading.
type File interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// HeaderReader streams the headers of a tar in member order.
type HeaderReader interface {
	// Next returns all the header blocks of the next member, exactly as in the
	// tar: pax, GNU long name and sparse blocks with their content and padding,
	// and the header itself; never the content of the member or its padding.
	// What it returns is valid until the next call. io.EOF follows the last.
	Next() ([]byte, error)
	Close() error
}

// Old is the old content on the device, in whatever store it is. Apply checks
// what it gets; an Old need not.
type Old interface {
	// OpenFile opens the regular file at path of the tar object in. The path is
	// as in the tar, cleaned, without leading "./" or "/", with slashes. With
	// path "" it opens the whole of the blob object in. An object that is not
	// there is ErrNoObject, a file that is not there fs.ErrNotExist (both may be
	// wrapped).
	OpenFile(ctx context.Context, in Digest, path string) (File, error)
	// Headers opens the headers of the tar object in, from the first member.
	// Apply has a handful of them open at a time.
	Headers(ctx context.Context, in Digest) (HeaderReader, error)
}

// Sink takes one rebuilt object. After Write calls that bring its bytes in
// order, exactly one of Commit and Abort is called.
type Sink interface {
	io.Writer
	// Commit says that all bytes were written and that their digest is right.
	Commit() error
	// Abort says that the object could not be rebuilt, and why: what was
	// written is worthless.
	Abort(cause error)
}
