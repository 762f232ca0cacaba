package inspect

import (
	"archive/tar"
	"cmp"
	"io"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

// MaxLargest is the maximum number of largest files that are listed for an image.
const MaxLargest = 20

// maxPath is the bytes of the longest path that is listed.
const maxPath = 1024

// LargeFile is one of the largest files that travel whole, in a layer of an image.
type LargeFile struct {
	Path  string        `json:"path"`
	Bytes int64         `json:"bytes"`
	Layer digest.Digest `json:"layer"` // its diffID
}

// found is a file of a member of an image's archive, which may be a layer.
type found struct {
	LargeFile
	member string
}

// largest finds the largest files of layers as they arrive.
type largest struct{ files []found }

// layer reads the tar of a layer. What is not a tar has no files here: whether it is
// what it should be is for its digest to say. A compressed layer is not looked into.
func (l *largest) layer(m image.Member, r io.Reader) error {
	if m.Compression != "" {
		return nil
	}
	files := slices.Clone(l.files) // what is not a tar to its end leaves nothing
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			l.files = files
			return nil
		}
		if err != nil {
			return nil // ReadStream meets an error of r again
		}
		// A sparse file is larger than its layer.
		if h.Typeflag == tar.TypeReg && h.Size > 0 && h.Size <= m.Size && len(h.Name) <= maxPath {
			files = keepLargest(files, found{LargeFile{Path: h.Name, Bytes: h.Size}, m.Name})
		}
	}
}

// keepLargest returns a list with f in its place, without those that are too many.
func keepLargest(files []found, f found) []found {
	if n := len(files); n == MaxLargest && files[n-1].Bytes >= f.Bytes {
		return files
	}
	at, _ := slices.BinarySearchFunc(files, f, func(a, b found) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.member, b.member), cmp.Compare(a.Path, b.Path))
	})
	files = slices.Insert(files, at, f)
	return files[:min(len(files), MaxLargest)]
}

// of returns the files of the layers of an image, the largest first.
func (l *largest) of(img *image.StreamImage) (list []LargeFile) {
	for _, f := range l.files {
		if n := slices.Index(img.Members, f.member); n >= 0 {
			f.Layer = img.Layers[n].DiffID
			list = append(list, f.LargeFile)
		}
	}
	return list
}
