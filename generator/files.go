package generator

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
)

// file is a regular file of an image.
type file struct {
	path  string
	sum   [sha256.Size]byte
	size  int64
	layer *image.Layer
	off   int64 // of its content in the layer's tar
}

// files are the regular files of an image, as whoever looks for a path from the
// topmost layer down finds them.
type files struct {
	byPath  map[string]*file
	order   []*file // as the layers have them
	content map[[sha256.Size]byte]bool
}

// leastShared is the size from which on it pays to name a file.
const leastShared = 64

// readFiles reads the layers of an image, but for those that skip wants left
// out. Paths are left out that a store may see otherwise than the tar has them:
// those of links and below them, of sparse files, and those that are there twice
// in a layer.
func readFiles(ctx context.Context, img *image.Image, skip func(image.Digest) bool) (*files, error) {
	fs := &files{byPath: map[string]*file{}, content: map[[sha256.Size]byte]bool{}}
	for i := range img.Layers {
		l := &img.Layers[i]
		if skip != nil && skip(l.DiffID) {
			continue
		}
		if err := fs.layer(ctx, l); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.DiffID, err)
		}
	}
	var hidden []string
	for p, f := range fs.byPath {
		gone := f == nil
		for dir := path.Dir(p); dir != "." && !gone; dir = path.Dir(dir) {
			_, gone = fs.byPath[dir] // it is no directory everywhere
		}
		if gone {
			hidden = append(hidden, p)
		}
	}
	for _, p := range hidden {
		delete(fs.byPath, p)
	}
	return fs, nil
}

func (fs *files) layer(ctx context.Context, l *image.Layer) error {
	in, err := l.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	here := map[string]bool{}
	seeker, ok := in.(io.Seeker) // readLayers has put it into a file
	if !ok {
		return errors.New("its tar is not in a file")
	}
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if err != nil {
			return nil // its end, or no tar to its end: what could be read serves
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		p := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Typeflag == tar.TypeDir {
			continue
		}
		regular := h.Typeflag == tar.TypeReg && !strings.HasSuffix(h.Name, "/") && p != ""
		for k := range h.PAXRecords {
			regular = regular && !strings.HasPrefix(k, "GNU.sparse.")
		}
		if dir, name := path.Split(p); strings.HasPrefix(name, ".wh.") {
			fs.byPath[dir+strings.TrimPrefix(name, ".wh.")] = nil
		}
		if !regular || here[p] {
			fs.byPath[p] = nil
			here[p] = true
			continue
		}
		here[p] = true
		off, err := seeker.Seek(0, io.SeekCurrent) // the tar reader reads no further than it must
		if err != nil {
			return err
		}
		f := &file{path: p, size: h.Size, layer: l, off: off}
		sum := sha256.New()
		if _, err := io.Copy(sum, r); err != nil {
			fs.byPath[p] = nil
			return nil
		}
		sum.Sum(f.sum[:0])
		fs.content[f.sum] = true
		fs.order = append(fs.order, f)
		if old, known := fs.byPath[p]; known && old == nil {
			continue // it is something else in a layer below
		}
		fs.byPath[p] = f
	}
}

// alike lists the files that are the same at the same path in all.
func (fs *files) alike(others []*files) []*file {
	var list []*file
	for p, f := range fs.byPath {
		if !slices.ContainsFunc(others, func(o *files) bool { return o.byPath[p] == nil || o.byPath[p].sum != f.sum }) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	return list
}

var digits = regexp.MustCompile(`[0-9]+([.][0-9]+)*`)

// stem is a path without its version.
func stem(p string) string { return digits.ReplaceAllString(p, "#") }

// worthSharing lists the files, each content once, that more than one of the
// bases lacks. A file that has a predecessor in some base that not all of them
// have is not among them: a delta over that base makes it for less.
func (fs *files) worthSharing(bases []*files, same []*file) []*file {
	inAll := map[string]bool{}
	for _, f := range same {
		inAll[f.path] = true
	}
	better := map[string]bool{}
	for _, b := range bases {
		for p := range b.byPath {
			if !inAll[p] {
				better[stem(p)] = true
			}
		}
	}
	var list []*file
	seen := map[[sha256.Size]byte]bool{}
	for _, f := range fs.order {
		lack := 0
		for _, b := range bases {
			if !b.content[f.sum] {
				lack++
			}
		}
		if lack < 2 || f.size < leastShared || seen[f.sum] || better[stem(f.path)] {
			continue
		}
		seen[f.sum] = true
		list = append(list, f)
	}
	return list
}

// pack writes files into a tar: under their paths, or under numbers, which no
// path of an image is likely to be, so that nothing but content is compared.
func (g *generation) pack(ctx context.Context, list []*file, paths bool) (p *packed, err error) {
	f, err := os.CreateTemp(g.temp, "files-*")
	if err != nil {
		return nil, &WriteError{err}
	}
	p = &packed{path: f.Name()}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = &WriteError{cerr}
		}
		if err != nil {
			os.Remove(p.path)
		}
	}()
	sum := sha256.New()
	n := &counter{}
	w := tar.NewWriter(io.MultiWriter(f, sum, n))
	opened := map[*image.Layer]io.ReadCloser{}
	defer func() {
		for _, in := range opened {
			in.Close()
		}
	}()
	for i, file := range list {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		in := opened[file.layer]
		if in == nil {
			if in, err = file.layer.Open(); err != nil {
				return nil, err
			}
			opened[file.layer] = in
		}
		name := file.path
		if !paths {
			name = fmt.Sprint(i)
		}
		at, ok := in.(io.ReaderAt)
		if !ok {
			return nil, errors.New("a layer is not in a file")
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: file.size}); err != nil {
			return nil, fmt.Errorf("%s: %w", file.path, err)
		}
		if _, err := io.Copy(w, io.NewSectionReader(at, file.off, file.size)); err != nil {
			return nil, &WriteError{err}
		}
	}
	if err := w.Close(); err != nil {
		return nil, &WriteError{err}
	}
	p.digest, p.size = delta.Digest(fmt.Sprintf("sha256:%x", sum.Sum(nil))), n.n
	return p, nil
}
