package backup

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/submodules"
)

// Reader reads the members of a backup in their order.
type Reader struct {
	zr    *zstd.Decoder
	tr    *tar.Reader
	known []Member // what Verify found; nil while Verify reads
	seen  []Member
	apps  []string
	sum   hash.Hash // of the current member; nil for none
}

// NewReader reads a backup that Verify has read, and returns an ErrFormat as soon as a
// member differs.
func NewReader(in io.Reader, c *Contents) (*Reader, error) { return newReader(in, c.members) }

func newReader(in io.Reader, known []Member) (*Reader, error) {
	zr, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(2*window))
	if err != nil {
		return nil, err
	}
	return &Reader{zr: zr, tr: tar.NewReader(zr), known: known}, nil
}

// Close ends the reading. It does not close the underlying reader.
func (r *Reader) Close() { r.zr.Close() }

// Next reads the rest of the current member and returns the name of the next one. At the
// end it returns io.EOF.
func (r *Reader) Next() (string, error) {
	if err := r.End(); err != nil {
		return "", err
	}
	h, err := r.tr.Next()
	if errors.Is(err, io.EOF) {
		return "", bad("it has no index: it is not whole")
	}
	if err != nil {
		return "", readError(err)
	}
	if !plain(h) || h.Typeflag != tar.TypeReg {
		return "", bad("%q is not a file", h.Name)
	}
	before := ""
	if n := len(r.seen); n > 0 {
		before = r.seen[n-1].Name
	}
	app, err := follows(before, h.Name, r.apps)
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(h.Name, "/"+NameSettings) {
		r.apps = append(r.apps, app)
	}
	if h.Name == nameIndex {
		return "", r.index(h.Size)
	}
	if r.known != nil && len(r.seen) >= len(r.known) {
		return "", errChanged
	}
	r.seen, r.sum = append(r.seen, Member{Name: h.Name, Size: h.Size}), sha256.New()
	return h.Name, nil
}

var errChanged = bad("it has changed since it was verified")

// plain reports whether a header describes an entry that is not sparse. The holes of a
// sparse file take no space in the tar, however large they are.
func plain(h *tar.Header) bool {
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse") {
			return false
		}
	}
	return h.Size >= 0
}

// readError returns an ErrFormat if the content is at fault, not the reading.
func readError(err error) error {
	for _, wrong := range []error{
		tar.ErrHeader, tar.ErrFieldTooLong, io.ErrUnexpectedEOF, zstd.ErrMagicMismatch, zstd.ErrCRCMismatch, zstd.ErrWindowSizeExceeded,
		zstd.ErrWindowSizeTooSmall, zstd.ErrDecoderSizeExceeded, zstd.ErrUnknownDictionary, zstd.ErrReservedBlockType, zstd.ErrCompressedSizeTooBig,
		zstd.ErrUnexpectedBlockSize, zstd.ErrFrameSizeExceeded, zstd.ErrFrameSizeMismatch,
	} {
		if errors.Is(err, wrong) {
			return bad("%w", err)
		}
	}
	return err
}

// Read reads from the current member.
func (r *Reader) Read(p []byte) (int, error) {
	if r.sum == nil {
		return 0, io.EOF
	}
	n, err := r.tr.Read(p)
	r.sum.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		err = readError(err)
	}
	return n, err
}

// End reads the rest of the current member. The member is what Verify has seen only if
// End returns nil.
func (r *Reader) End() error {
	if r.sum == nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	i := len(r.seen) - 1
	r.seen[i].Digest, r.sum = digest.OfHash(r.sum), nil
	if r.known != nil && r.seen[i] != r.known[i] {
		return errChanged
	}
	return nil
}

// JSON reads the current member into v.
func (r *Reader) JSON(v any) error {
	text, err := io.ReadAll(io.LimitReader(r, maxJSON+1))
	if err != nil {
		return err
	}
	name := r.seen[len(r.seen)-1].Name
	if len(text) > maxJSON {
		return bad("%s is larger than %d bytes", name, maxJSON)
	}
	if err := r.End(); err != nil {
		return err
	}
	return decode(name, text, v)
}

// index compares the index with the members that were read, and reads to the end. On
// success it returns io.EOF.
func (r *Reader) index(size int64) error {
	if size > maxJSON {
		return bad("an index of %d bytes", size)
	}
	text, err := io.ReadAll(r.tr)
	if err != nil {
		return readError(err)
	}
	var x index
	if err := decode(nameIndex, text, &x); err != nil {
		return err
	}
	switch {
	case x.Format > Format:
		return fmt.Errorf("%w: a newer mender-app wrote it (format %d)", ErrFormat, x.Format)
	case !slices.Equal(x.Members, r.seen):
		return bad("its members are not those of its index: it is damaged")
	case r.known != nil && len(r.seen) != len(r.known):
		return errChanged
	}
	if _, err := r.tr.Next(); !errors.Is(err, io.EOF) {
		return bad("something follows its index")
	}
	if n, err := io.Copy(io.Discard, r.zr); err != nil {
		return readError(err)
	} else if n > 0 {
		return bad("something follows it")
	}
	return io.EOF
}

// Contents describes a verified backup.
type Contents struct {
	Values map[string]string // of all applications
	Apps   []string          // in their order
	// Headers are those of the artifacts, in the same order.
	Headers []*mender.Header
	members []Member
}

// Verify reads a backup to its end and checks everything that can be checked before an
// installation: each member, the artifacts' metadata, and the names in the data.
func Verify(in io.Reader) (*Contents, error) {
	r, err := newReader(in, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c := &Contents{}
	var s Settings // of the last application: memory holds only one
	for {
		name, err := r.Next()
		if errors.Is(err, io.EOF) {
			c.members = r.seen
			return c, complete(&s, r.seen)
		}
		if err != nil {
			return nil, err
		}
		app, part, ours := strings.Cut(name, "/")
		if part != NameArtifact && part != NameData {
			if err := complete(&s, r.seen[:len(r.seen)-1]); err != nil {
				return nil, err
			}
		}
		switch {
		case !ours:
			if err := r.JSON(&c.Values); err != nil {
				return nil, err
			}
			err = checkValues(c.Values)
		case part == NameSettings:
			s = Settings{}
			if err := r.JSON(&s); err != nil {
				return nil, err
			}
			if err = s.check(app); err == nil {
				err = checkValues(s.Values)
			}
			c.Apps = append(c.Apps, app)
		case part == NameArtifact:
			var h *mender.Header
			h, err = checkArtifact(r, &s)
			c.Headers = append(c.Headers, h)
		case part == NameData:
			_, err = ReadTree(r, nil, s.Places)
		}
		if err != nil {
			return nil, err
		}
	}
}

// complete returns an error if the last application has places but no data, or data but no
// places.
func complete(s *Settings, seen []Member) error {
	if s.Application == "" {
		return nil
	}
	if (seen[len(seen)-1].Name == s.Application+"/"+NameData) != (len(s.Places) > 0) {
		return bad("data of %s in %d places", s.Application, len(s.Places))
	}
	return nil
}

func checkValues(set map[string]string) error {
	if len(set) > submodules.MaxValues {
		return bad("there are more than %d values", submodules.MaxValues)
	}
	for name, v := range set {
		if err := submodules.CheckValue(name, v); err != nil {
			return bad("%w", err)
		}
	}
	return nil
}

// checkArtifact checks an artifact by reading it to its end, and returns its header.
func checkArtifact(in io.Reader, s *Settings) (*mender.Header, error) {
	a, err := mender.NewReader(in, mender.ReadOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Application, err)
	}
	m, _, err := artifact.ParseMetadata(a.Header().MetaData)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Application, err)
	}
	if m.ApplicationName != s.Application || a.Header().Name != s.ArtifactName {
		return nil, bad("the artifact of %s is %s of %s", s.Application, a.Header().Name, m.ApplicationName)
	}
	for {
		if _, err := a.Next(); errors.Is(err, io.EOF) {
			return a.Header(), nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Application, err)
		}
	}
}
