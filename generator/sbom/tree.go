// Package sbom lists the content of a container image: its files, and the
// packages that the databases of package managers and Go programs name. It writes
// bills of materials as CycloneDX.
//
// It reads layers that lie uncompressed on disk, and knows nothing of how an artifact
// looks.
package sbom

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
)

// maxFiles is the most files an image may have: a person cannot look through
// more, and the memory stays below about 1 GiB.
const maxFiles = 2_000_000

// File is one file, link or device of an image.
type File struct {
	Path  string // without a leading slash
	Type  byte   // as in tar.Header
	Mode  int64  // permission bits, set-id and sticky bits
	UID   int
	GID   int
	Size  int64             // of a regular file, in bytes
	Sum   [sha256.Size]byte // of a regular file's content
	Link  string            // target of a symbolic link
	layer *image.Layer
	off   int64 // of its content in the layer's tar
}

// Same reports whether two files differ at most in their times.
func (f *File) Same(o *File) bool {
	return f.Type == o.Type && f.Mode == o.Mode && f.UID == o.UID && f.GID == o.GID && f.Size == o.Size && f.Sum == o.Sum && f.Link == o.Link
}

// Tree is the file system of an image: all its layers together.
type Tree struct {
	files map[string]*File
}

// Paths are the paths of all files but directories, sorted.
func (t *Tree) Paths() []string { return slices.Sorted(maps.Keys(t.files)) }

// File is the file at a path; nil if there is none.
func (t *Tree) File(p string) *File { return t.files[p] }

// ReadTree reads an image whose layers are uncompressed tars in files: what
// Layer.Open gives must be an io.ReaderAt.
func ReadTree(ctx context.Context, img *image.Image) (*Tree, error) {
	t := &Tree{files: map[string]*File{}}
	// From the topmost layer down: hidden are the paths below which lower layers
	// count no more, and taken those that have something already.
	hidden, taken := map[string]bool{}, map[string]bool{}
	for i := range slices.Backward(img.Layers) {
		l := &img.Layers[i]
		if err := t.layer(ctx, l, hidden, taken); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.DiffID, err)
		}
	}
	return t, nil
}

func (t *Tree) layer(ctx context.Context, l *image.Layer, hidden, taken map[string]bool) error {
	in, err := l.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	seeker, ok := in.(io.Seeker)
	if _, at := in.(io.ReaderAt); !ok || !at {
		return errors.New("its tar is not in a file")
	}
	covered := func(p string) bool {
		if taken[p] {
			return true
		}
		for ; p != "."; p = path.Dir(p) {
			if hidden[p] {
				return true
			}
		}
		return false
	}
	here := map[string]*File{} // nil: a directory, or a link that leads nowhere
	var hides []string
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(t.files)+len(here) > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		p := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		dir, name := path.Split(p)
		dir = strings.TrimSuffix(dir, "/")
		switch {
		case p == "":
			continue
		case name == ".wh..wh..opq":
			hides = append(hides, dir)
			continue
		case strings.HasPrefix(name, ".wh..wh."):
			continue
		case strings.HasPrefix(name, ".wh."):
			hides = append(hides, path.Join(dir, strings.TrimPrefix(name, ".wh.")))
			continue
		}
		f := &File{Path: p, Type: h.Typeflag, Mode: h.Mode & 0o7777, UID: h.Uid, GID: h.Gid}
		switch h.Typeflag {
		case tar.TypeDir:
			f = nil
		case tar.TypeReg:
			if f.off, err = seeker.Seek(0, io.SeekCurrent); err != nil { // the tar reader reads no further than it must
				return err
			}
			f.layer, f.Size = l, h.Size
			sum := sha256.New()
			if _, err := io.Copy(sum, r); err != nil {
				return err
			}
			sum.Sum(f.Sum[:0])
		case tar.TypeLink:
			target := here[strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")]
			if f = nil; target != nil {
				link := *target
				link.Path = p
				f = &link
			}
		case tar.TypeSymlink:
			f.Link = h.Linkname
		default:
			f.Link = fmt.Sprintf("%d:%d", h.Devmajor, h.Devminor)
		}
		here[p] = f
	}
	var visible []string
	for p, f := range here {
		if covered(p) {
			continue
		}
		visible = append(visible, p)
		if f != nil {
			t.files[p] = f
			hides = append(hides, p) // no directory in a layer below shows through
		}
	}
	for _, p := range visible {
		taken[p] = true
	}
	for _, p := range hides {
		hidden[p] = true
	}
	return nil
}

// open gives the content of a regular file.
func (f *File) open() (*io.SectionReader, io.Closer, error) {
	in, err := f.layer.Open()
	if err != nil {
		return nil, nil, err
	}
	at, ok := in.(io.ReaderAt)
	if !ok {
		in.Close()
		return nil, nil, errors.New("its layer is not in a file")
	}
	return io.NewSectionReader(at, f.off, f.Size), in, nil
}

// content reads a regular file of at most most bytes.
func (f *File) content(most int64) ([]byte, error) {
	if f.Type != tar.TypeReg {
		return nil, errors.New("not a regular file")
	}
	if f.Size > most {
		return nil, fmt.Errorf("%d bytes are more than such a file may have", f.Size)
	}
	r, c, err := f.open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return io.ReadAll(r)
}
