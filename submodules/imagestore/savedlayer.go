package imagestore

import (
	"archive/tar"
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/layer"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// SavedLayer is a layer as SAVE or docker save gives it: an uncompressed tar that can
// be read at any place. It is old content for deltas. Its index is made when it is
// first needed.
type SavedLayer struct {
	diffID  image.Digest
	r       tarFile
	size    int64
	scanned bool
	// files is indexed by a hash of the names, because the names would take several
	// times as much memory. A collision does no harm: the content is verified.
	files  map[uint64]savedFile
	opened int64
}

type tarFile interface {
	io.ReaderAt
	io.Closer
}

// names hashes names of files.
var names = maphash.MakeSeed()

type extent struct{ offset, size int64 }

type savedFile struct {
	extent
	opened bool
}

// NewSavedLayer returns the layer whose tar of size bytes is in r. Closing the layer
// closes r.
func NewSavedLayer(diffID image.Digest, r tarFile, size int64) *SavedLayer {
	return &SavedLayer{diffID: diffID, r: r, size: size}
}

// Close closes the tar.
func (l *SavedLayer) Close() error { return l.r.Close() }

// Size is the size of the tar in bytes.
func (l *SavedLayer) Size() int64 { return l.size }

// Opened is the size of the files that were opened, in bytes.
func (l *SavedLayer) Opened() int64 { return l.opened }

// Tar returns the whole tar. Closing it leaves the layer open.
func (l *SavedLayer) Tar() io.ReadCloser {
	l.opened = l.size
	return section{io.NewSectionReader(l.r, 0, l.size)}
}

// OpenFile opens a file of the layer, as delta.Old does.
func (l *SavedLayer) OpenFile(name string) (delta.File, error) {
	if err := l.scan(); err != nil {
		return nil, err
	}
	key := maphash.String(names, name)
	at, ok := l.files[key]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if !at.opened {
		at.opened = true
		l.files[key] = at
		l.opened += at.size
	}
	return section{io.NewSectionReader(l.r, at.offset, at.size)}, nil
}

// Headers returns the headers of the layer's members, as delta.Old does.
func (l *SavedLayer) Headers() (delta.HeaderReader, error) {
	return tarstore.NewHeadersAt(l.r, l.size), nil
}

// scan finds the positions of all files in the tar.
func (l *SavedLayer) scan() error {
	if l.scanned {
		return nil
	}
	in := io.NewSectionReader(l.r, 0, l.size)
	l.files = map[uint64]savedFile{}
	tr := tar.NewReader(in)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			l.scanned = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("layer %s: %w", l.diffID, err)
		}
		m := layer.Of(h)
		if m.Kind == layer.None {
			continue
		}
		key := maphash.String(names, m.Path)
		if m.Kind != layer.File || layer.Sparse(h) { // no delta reads a sparse file
			delete(l.files, key)
			continue
		}
		// archive/tar reads whole blocks and no further: the position is where the
		// content begins.
		at, err := in.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		l.files[key] = savedFile{extent{at, h.Size}, false}
	}
}

// MaxHeaders bounds the headers of one member of a tar, in bytes: pax records may have
// large extended attributes.
const MaxHeaders = 4 << 20

type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// NewBlob makes a delta.File of bytes in memory.
func NewBlob(b []byte) delta.File { return blob{bytes.NewReader(b)} }

type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }
