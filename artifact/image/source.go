package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
	"github.com/mender-app/mender-app/artifact/scratch"
)

// maxArchiveMembers bounds the index of an archive in memory. maxArchive bounds
// the size of an unpacked archive, in bytes.
const (
	maxArchiveMembers = 1 << 16
	maxArchive        = 256 << 30
)

// source has the members of an archive.
type source interface {
	// open opens a member that is a regular file. Other members are an ErrMissing.
	open(name string) (io.ReadSeekCloser, int64, error)
	Close() error
}

func openSource(name string) (source, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		return dirSource{root}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if f, err = unpacked(f); err != nil {
		return nil, err
	}
	src := &tarSource{f: f, files: make(map[string]extent), links: make(map[string]string)}
	if err := src.scan(); err != nil {
		f.Close()
		return nil, err
	}
	return src, nil
}

// unpacked returns f itself or, if f is compressed, an unlinked file with the
// unpacked content.
func unpacked(f *os.File) (*os.File, error) {
	head := make([]byte, sniffLen)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		f.Close()
		return nil, err
	}
	compression, err := sniff(head[:n])
	if err != nil {
		f.Close()
		return nil, err
	}
	if compression == "" {
		return f, nil
	}
	defer f.Close()
	z, err := inflate(f, compression, hostWindow)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	tmp, err := scratch.Unnamed("")
	if err != nil {
		return nil, err
	}
	size, err := io.Copy(scratch.Sparing(tmp), io.LimitReader(z, maxArchive+1))
	if err == nil && size > maxArchive {
		err = fmt.Errorf("%w: it unpacks to more than %d bytes", ErrTooLarge, int64(maxArchive))
	}
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	if err != nil {
		tmp.Close()
		return nil, err
	}
	return tmp, nil
}

// dirSource is an archive that is a directory.
type dirSource struct{ root *os.Root }

func (d dirSource) Close() error { return d.root.Close() }

func (d dirSource) open(name string) (io.ReadSeekCloser, int64, error) {
	if _, err := tarin.Name(name); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if to, err := d.root.Readlink(name); err == nil && strings.HasPrefix(name, blobDir) && (filepath.IsAbs(to) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), to))) {
		return d.linked(name)
	}
	// Stat first: opening something like a FIFO would block.
	st, err := d.root.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, fmt.Errorf("%s: %w", clip.Text(name), ErrMissing)
	}
	if err != nil {
		return nil, 0, err
	}
	if !st.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%w: %s is not a file", ErrFormat, clip.Text(name))
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// linked opens a blob that is a link out of the directory, as Bazel and layouts with
// shared blobs have them. Blobs are compared with their digests, so that such a link
// brings in nothing that the manifests do not name.
func (d dirSource) linked(name string) (io.ReadSeekCloser, int64, error) {
	path := filepath.Join(d.root.Name(), name)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, 0, fmt.Errorf("%s: %w", clip.Text(name), ErrMissing)
	case err != nil:
		return nil, 0, err
	case !st.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%w: %s is not a file", ErrFormat, clip.Text(name))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// tarSource is an archive that is a tar, with an index of its files.
type tarSource struct {
	f     *os.File
	files map[string]extent
	links map[string]string // symbolic and hard links: name → name of the target
}

type extent struct{ offset, size int64 }

func (t *tarSource) Close() error { return t.f.Close() }

func (t *tarSource) scan() error {
	st, err := t.f.Stat()
	if err != nil {
		return err
	}
	tr := tar.NewReader(t.f)
	for range maxArchiveMembers {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			if errors.Is(err, tar.ErrHeader) {
				return fmt.Errorf("%w: damaged, or not a tar", ErrFormat)
			}
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		name, err := tarin.Name(h.Name)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if err := t.add(name, h, st.Size()); err != nil {
			return fmt.Errorf("member %q: %w", clip.Text(name), err)
		}
	}
	return fmt.Errorf("%w: more than %d members", ErrTooLarge, maxArchiveMembers)
}

func (t *tarSource) add(name string, h *tar.Header, end int64) error {
	if h.Typeflag == tar.TypeDir {
		return nil
	}
	if first, file := t.files[name]; file && h.Typeflag == tar.TypeReg && !tarin.Sparse(h) {
		return t.repeated(first, h, end)
	}
	if to, link := t.links[name]; link && to == linkOf(name, h) {
		return nil
	}
	_, file := t.files[name]
	_, link := t.links[name]
	if file || link {
		return fmt.Errorf("%w: it occurs twice", ErrFormat)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		if tarin.Sparse(h) {
			return fmt.Errorf("%w: it is sparse", ErrFormat)
		}
		// archive/tar reads the header blocks only, so the file's position is the
		// start of the content.
		at, err := t.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if h.Size > end-at {
			return fmt.Errorf("%w: truncated", ErrFormat)
		}
		t.files[name] = extent{at, h.Size}
	case tar.TypeSymlink, tar.TypeLink:
		t.links[name] = linkOf(name, h)
	}
	return nil
}

// linkOf is the name of the member that a link leads to; "" for no link.
func linkOf(name string, h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeSymlink:
		return path.Join(path.Dir(name), h.Linkname)
	case tar.TypeLink:
		return path.Clean(h.Linkname)
	}
	return ""
}

// repeated accepts a member that is there a second time with the same content.
func (t *tarSource) repeated(first extent, h *tar.Header, end int64) error {
	at, err := t.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if h.Size > end-at {
		return fmt.Errorf("%w: truncated", ErrFormat)
	}
	if h.Size == first.size {
		x, _, err := digest.OfReader(io.NewSectionReader(t.f, first.offset, first.size))
		if err != nil {
			return err
		}
		y, _, err := digest.OfReader(io.NewSectionReader(t.f, at, h.Size))
		if err != nil {
			return err
		}
		if x == y {
			return nil
		}
	}
	return fmt.Errorf("%w: it occurs twice, with different content", ErrFormat)
}

func (t *tarSource) open(name string) (io.ReadSeekCloser, int64, error) {
	e, ok := t.files[follow(name, t.links)]
	if !ok {
		return nil, 0, fmt.Errorf("%s: %w", clip.Text(name), ErrMissing)
	}
	return nopCloser{io.NewSectionReader(t.f, e.offset, e.size)}, e.size, nil
}

// follow returns the name of the member that a name leads to. Real archives have
// few and short chains of links (docker save before 25 links a layer that is there
// twice), so it follows at most eight.
func follow(name string, links map[string]string) string {
	name = path.Clean(name)
	for range 8 {
		target, ok := links[name]
		if !ok {
			break
		}
		name = target
	}
	return name
}

type nopCloser struct{ *io.SectionReader }

func (nopCloser) Close() error { return nil }
