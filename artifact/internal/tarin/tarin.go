// Package tarin reads tars that may be hostile, as a stream. A tar may be
// compressed with gzip. Its unpacked size, the number of its members and the length
// of their names are bounded, and it must have an end. The callers check which
// members there are.
package tarin

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// MaxName is the length in bytes of the longest name of a member.
const MaxName = 1024

// maxTail bounds the zero bytes after the end of a tar: GNU tar fills up to
// its record size, 10 KiB unless told otherwise.
const maxTail = 1 << 20

// Options are the bounds of a Reader. All fields but Plain are required.
type Options struct {
	MaxBytes   int64 // of the tar, unpacked
	MaxMembers int
	Plain      bool  // the tar must not be compressed
	Format     error // wrapped by errors about a malformed tar
	TooLarge   error // wrapped by errors about bounds
}

// Reader reads the members of a tar, one after the other.
type Reader struct {
	o       Options
	raw     *meter // the unpacked tar
	gz      *gzip.Reader
	tr      *tar.Reader
	pad     int64 // padding after the current member
	members int
	left    int64
	err     error
}

// NewReader starts to read the tar in r.
func NewReader(r io.Reader, o Options) (*Reader, error) {
	o.MaxBytes = min(o.MaxBytes, math.MaxInt64/2) // so that no sum overflows
	t := &Reader{o: o}
	br := bufio.NewReaderSize(r, 64<<10)
	magic, err := br.Peek(2)
	if err != nil {
		if err == io.EOF {
			err = errors.New("empty or truncated")
		}
		return nil, t.bad(err)
	}
	var src io.Reader = br
	if !o.Plain && magic[0] == 0x1f && magic[1] == 0x8b {
		if t.gz, err = gzip.NewReader(br); err != nil {
			return nil, t.bad(err)
		}
		src = t.gz
	}
	t.raw = &meter{r: src, max: o.MaxBytes}
	t.tr = tar.NewReader(t.raw)
	return t, nil
}

// Next skips the rest of the current member and goes to the next one. The name of
// a member is clean: relative, without "." and "..", without a slash at its end. The
// entry of the root ("./") is left out. At the end of the tar, Next reads the stream
// to its end and returns io.EOF.
func (t *Reader) Next() (*tar.Header, error) {
	for {
		h, err := t.next()
		if err != nil || h.Name != "." {
			return h, err
		}
	}
}

func (t *Reader) next() (*tar.Header, error) {
	if t.err != nil {
		return nil, t.err
	}
	if _, err := io.Copy(io.Discard, t); err != nil {
		return nil, t.fail(err)
	}
	mark := t.raw.n
	h, err := t.tr.Next()
	if err == io.EOF {
		return nil, t.end(mark + t.pad)
	}
	if err != nil {
		return nil, t.fail(t.bad(err))
	}
	if t.members++; t.members > t.o.MaxMembers {
		return nil, t.fail(fmt.Errorf("%w: more than %d members", t.o.TooLarge, t.o.MaxMembers))
	}
	if h.Name, err = Name(h.Name); err != nil {
		return nil, t.fail(t.bad(err))
	}
	if Sparse(h) {
		return nil, t.fail(t.bad(fmt.Errorf("member %q is sparse", h.Name)))
	}
	t.left = h.Size
	if h.Typeflag != tar.TypeReg {
		// Only regular files have content for Read. archive/tar skips the content
		// of members of other types.
		t.left = 0
	} else if h.Size > t.o.MaxBytes-t.raw.n {
		return nil, t.fail(fmt.Errorf("%w: member %q of %d bytes, %d are left of %d", t.o.TooLarge, h.Name, h.Size, max(t.o.MaxBytes-t.raw.n, 0), t.o.MaxBytes))
	}
	t.pad = -t.left & 511
	return h, nil
}

// Read reads the current member.
func (t *Reader) Read(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	if t.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > t.left {
		p = p[:t.left]
	}
	n, err := t.tr.Read(p)
	t.left -= int64(n)
	switch {
	case err == io.EOF && t.left > 0:
		err = t.fail(t.bad(io.ErrUnexpectedEOF))
	case err != nil && err != io.EOF:
		err = t.fail(t.bad(err))
	}
	return n, err
}

// Bytes returns how much of the unpacked tar has been read.
func (t *Reader) Bytes() int64 { return t.raw.n }

// end checks that the tar has an end, because archive/tar accepts a truncated tar,
// and reads the stream to its end.
func (t *Reader) end(members int64) error {
	buf := make([]byte, 32<<10)
	for tail := int64(0); ; {
		n, err := t.raw.Read(buf)
		for _, b := range buf[:n] {
			if b != 0 {
				return t.fail(t.bad(errors.New("there is data after the end of the tar")))
			}
		}
		if tail += int64(n); tail > maxTail {
			return t.fail(t.bad(errors.New("there is data after the end of the tar")))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return t.fail(t.bad(err))
		}
	}
	if t.raw.n-members < 1024 {
		return t.fail(t.bad(errors.New("truncated: the tar has no end")))
	}
	return t.fail(io.EOF)
}

func (t *Reader) fail(err error) error {
	t.err = err
	return err
}

func (t *Reader) bad(err error) error {
	if errors.Is(err, errOver) {
		return fmt.Errorf("%w: more than %d bytes", t.o.TooLarge, t.o.MaxBytes)
	}
	if errors.Is(err, t.o.Format) {
		return err // from an outer tar that contains this one: say it once
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: truncated: %w", t.o.Format, err)
	}
	if errors.Is(err, tar.ErrHeader) {
		return fmt.Errorf("%w: damaged, or not a tar", t.o.Format)
	}
	return fmt.Errorf("%w: %w", t.o.Format, err)
}

// Sparse reports whether h is a sparse file, in any form of tar. The size of such a
// file is not bounded by the size of the archive.
func Sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// Name checks the name of a member and returns it clean; the root is ".".
func Name(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("a member without a name")
	case len(name) > MaxName:
		return "", fmt.Errorf("a member with a name of %d bytes", len(name))
	case strings.ContainsRune(name, 0):
		return "", fmt.Errorf("member %q: NUL in its name", name)
	case name[0] == '/':
		return "", fmt.Errorf("member %q: absolute name", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("member %q: .. in its name", name)
		}
	}
	return path.Clean(name), nil
}

var errOver = errors.New("too many bytes")

// meter counts the bytes that are read and fails above its maximum. It hides the
// other methods of its reader, so that archive/tar cannot seek past the count.
type meter struct {
	r   io.Reader
	n   int64
	max int64
}

func (m *meter) Read(p []byte) (int, error) {
	if m.n > m.max {
		return 0, errOver
	}
	if most := m.max - m.n + 1; int64(len(p)) > most {
		p = p[:most]
	}
	n, err := m.r.Read(p)
	if m.n += int64(n); m.n > m.max {
		return n, errOver
	}
	return n, err
}
