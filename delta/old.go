package delta

import (
	"context"
	"io"
)

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

// Old is the old content on the device, in any kind of store. The decoder checks
// what it gets; an Old need not.
type Old interface {
	// OpenFile opens the regular file at path of the tar object in. The path is
	// the one in the tar, cleaned, with slashes, without leading "./" or "/". For
	// path "" it opens the whole blob object in. The error is ErrNoObject if the
	// object is missing, and fs.ErrNotExist if the file is (both may be wrapped).
	OpenFile(ctx context.Context, in Digest, path string) (File, error)
	// Headers opens the headers of the tar object in, from the first member.
	// The decoder has a handful of them open at a time.
	Headers(ctx context.Context, in Digest) (HeaderReader, error)
}

// Sink receives one rebuilt object. After Write was called with its bytes in order,
// exactly one of Commit and Abort is called.
type Sink interface {
	io.Writer
	// Commit says that all bytes were written and that their digest is right.
	Commit() error
	// Abort says that the object could not be rebuilt, and why. What was
	// written must not be used.
	Abort(cause error)
}
