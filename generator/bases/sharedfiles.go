package bases

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

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
)

// imageFile is a regular file of an image.
type imageFile struct {
	path  string
	sum   [sha256.Size]byte
	size  int64
	layer *image.Layer
	off   int64 // of its content in the layer's tar
}

// imageFiles are the regular files of an image. byPath has the one that a search from
// the topmost layer down finds.
type imageFiles struct {
	byPath  map[string]*imageFile
	order   []*imageFile // as the layers have them
	content map[[sha256.Size]byte]bool
}

// leastShared is the size in bytes of the smallest file that is shared: naming a
// smaller one costs more than it saves.
const leastShared = 64

// readImageFiles reads the layers of an image except those that skip tells to leave
// out. It leaves out paths that an image store may see differently from the tar:
// links and what is below them, sparse files, and paths that a layer has twice.
func readImageFiles(ctx context.Context, img *image.Image, skip func(image.Digest) bool) (*imageFiles, error) {
	fs := &imageFiles{byPath: map[string]*imageFile{}, content: map[[sha256.Size]byte]bool{}}
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
			_, gone = fs.byPath[dir] // a layer has something else than a directory there
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

func (fs *imageFiles) layer(ctx context.Context, l *image.Layer) error {
	in, err := l.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	here := map[string]bool{}
	seeker, ok := in.(io.Seeker)
	if !ok {
		return errors.New("its tar is not in a file")
	}
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if err != nil {
			return nil // the end, or damage: the files read so far can be used
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
		f := &imageFile{path: p, size: h.Size, layer: l, off: off}
		sum := sha256.New()
		if _, err := io.Copy(sum, r); err != nil {
			fs.byPath[p] = nil
			return nil
		}
		sum.Sum(f.sum[:0])
		fs.content[f.sum] = true
		fs.order = append(fs.order, f)
		if old, known := fs.byPath[p]; known && old == nil {
			continue // a layer below has something else at this path
		}
		fs.byPath[p] = f
	}
}

// alike lists the files that are the same at the same path in all.
func (fs *imageFiles) alike(others []*imageFiles) []*imageFile {
	var list []*imageFile
	for p, f := range fs.byPath {
		if !slices.ContainsFunc(others, func(o *imageFiles) bool { return o.byPath[p] == nil || o.byPath[p].sum != f.sum }) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b *imageFile) int { return strings.Compare(a.path, b.path) })
	return list
}

var numbers = regexp.MustCompile(`[0-9]+([.][0-9]+)*`)

// stem is a path without its version.
func stem(p string) string { return numbers.ReplaceAllString(p, "#") }

// worthSharing lists the files that more than one base lacks, each content once.
// It leaves out a file whose older version is in some bases only: a delta over
// such a base makes the file for less.
func (fs *imageFiles) worthSharing(bases []*imageFiles, same []*imageFile) []*imageFile {
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
	var list []*imageFile
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

// packFiles writes files into a tar in dir: under their paths, or under numbers. No
// image is likely to have files of such names, so that an encoder finds matches
// by content alone.
func packFiles(ctx context.Context, dir string, list []*imageFile, paths bool) (p *packedFiles, err error) {
	f, err := os.CreateTemp(dir, "files-*")
	if err != nil {
		return nil, err
	}
	p = &packedFiles{path: f.Name()}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(p.path)
		}
	}()
	sum := sha256.New()
	w := tar.NewWriter(metered.Writer(ctx, io.MultiWriter(f, sum), func(n int64) { p.size += n }))
	opened := map[*image.Layer]io.ReadCloser{}
	defer func() {
		for _, in := range opened {
			in.Close()
		}
	}()
	for i, file := range list {
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
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	p.digest = digest.OfHash(sum)
	return p, nil
}
