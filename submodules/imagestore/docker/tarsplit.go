package docker

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"

	"github.com/vbatts/tar-split/tar/storage"

	"github.com/mender-app/mender-app/artifact/layer"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// A tar-split is what the engine keeps of a layer's tar besides the unpacked files: all
// bytes but the contents, in segments, and after the headers of each member an entry
// with its name, size and the CRC-64 of its content. (github.com/vbatts/tar-split,
// tar/asm; unchanged since Docker 1.10.)

// splitMember is a member of a layer's tar, as its tar-split has it.
type splitMember struct {
	layer.Member
	head   []byte // all header blocks, valid until the next member; nil if they are too long
	size   int64  // of the content that follows the headers in the tar
	crc    []byte // of the content
	sparse bool   // size and crc are those of the file with its holes, and part of the tar is lost
}

// errNotKept says that the engine does not keep all of a layer's tar.
var errNotKept = errors.New("the engine keeps too little of its tar to give it back")

// notKept returns an error for a member of which the engine keeps too little.
func (m splitMember) notKept() error {
	if m.sparse || m.size > 0 && m.Kind != layer.File {
		return fmt.Errorf("%s: %w", m.Path, errNotKept)
	}
	return nil
}

// copy copies the member's content out of its file. It reports whether all of it is
// right, or what is wrong.
func (m splitMember) copy(w io.Writer, file io.Reader, buf []byte) (ok bool, what string) {
	crc := crc64.New(storage.CRCTable)
	n, err := io.CopyBuffer(io.MultiWriter(w, crc), struct{ io.Reader }{io.LimitReader(file, m.size)}, buf)
	switch {
	case err != nil: // such as a bad block of the disk
		return false, "cannot be read: " + err.Error()
	case n != m.size || !bytes.Equal(crc.Sum(nil), m.crc):
		return false, "is damaged"
	}
	return true, ""
}

// eachMember calls segment for each run of bytes of the tar that is not content, and
// member after the headers of each member.
func eachMember(up storage.Unpacker, segment func([]byte) error, member func(splitMember) error) error {
	var head headers
	for {
		entry, err := up.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch entry.Type {
		case storage.SegmentType:
			head.add(entry.Payload)
			err = segment(entry.Payload)
		case storage.FileType:
			err = member(head.member(entry))
		}
		if err != nil {
			return err
		}
	}
}

// headers collects the headers of a member out of segments, which begin with the
// padding of the content before.
type headers struct {
	buf  []byte
	over bool
	pad  int // of the content before; -1 where its size is unknown
}

func (h *headers) add(b []byte) {
	if h.over = h.over || len(h.buf)+len(b) > imagestore.MaxHeaders; !h.over {
		h.buf = append(h.buf, b...)
	}
}

// member tells what the member with the headers collected so far is. It begins with
// the next member's.
func (h *headers) member(entry *storage.Entry) splitMember {
	m := splitMember{size: entry.Size, crc: entry.Payload}
	m.head = h.take()
	header, err := tar.NewReader(bytes.NewReader(m.head)).Next()
	if err == nil {
		m.sparse = layer.Sparse(header)
	} else { // the map of a sparse file would follow; or the headers are too long
		header = &tar.Header{Typeflag: tar.TypeXGlobalHeader}
		if entry.Size > 0 {
			header = &tar.Header{Typeflag: tar.TypeReg, Name: entry.GetName()}
			m.sparse = true
		}
	}
	m.Member = layer.Of(header)
	h.pad = 0
	switch header.Typeflag {
	case tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo:
		m.size = 0 // some writers give a link the size of its file
	case tar.TypeXGlobalHeader: // its records are part of the headers
		h.pad = -len(m.head) & 511
	default:
		header.Size = m.size
		if h.pad = int(-m.size & 511); m.sparse {
			h.pad = -1
		}
	}
	return m
}

// take returns the headers, which are valid until the next call of add; nil if they are
// longer than MaxHeaders.
func (h *headers) take() []byte {
	if h.pad < 0 {
		h.pad = len(h.buf) % 512 // headers are whole blocks
	}
	head := h.buf[min(h.pad, len(h.buf)):]
	if h.over {
		head = nil
	}
	h.buf, h.over = h.buf[:0], false
	return head
}

// writeSplit writes a layer's tar, byte for byte, from its tar-split and its files.
func writeSplit(w io.Writer, root *os.Root, up storage.Unpacker) error {
	buf := make([]byte, 64<<10)
	return eachMember(up, func(segment []byte) error {
		_, err := w.Write(segment)
		return err
	}, func(m splitMember) error {
		if err := m.notKept(); err != nil || m.size == 0 {
			return err
		}
		f, err := imagestore.OpenWithin(root, m.Header.Name)
		if err != nil {
			return err
		}
		defer f.Close()
		if ok, what := m.copy(w, f, buf); !ok {
			return fmt.Errorf("%s %s", m.Path, what)
		}
		return nil
	})
}

// splitHeaders returns the headers of a tar from its tar-split.
type splitHeaders struct {
	up   storage.Unpacker
	head headers
	io.Closer
}

func (h *splitHeaders) Next() ([]byte, error) {
	for {
		entry, err := h.up.Next()
		if err != nil {
			return nil, err // io.EOF: what is left are the zero blocks at the end
		}
		switch entry.Type {
		case storage.SegmentType:
			h.head.add(entry.Payload)
		case storage.FileType:
			m := h.head.member(entry)
			if m.head == nil {
				return nil, fmt.Errorf("tar-split: headers of more than %d bytes", imagestore.MaxHeaders)
			}
			return m.head, nil
		}
	}
}
