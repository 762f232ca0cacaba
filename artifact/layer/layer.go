// Package layer says what the members of a layer's tar are to the engines that unpack
// it: files, marks of removed names, or no file at all. It is the one place that
// decides this. It knows neither images nor stores.
//
// Sources: moby, pkg/archive/archive.go (Unpack) and archive_linux.go; containerd,
// pkg/archive/tar.go (applyNaive); the OCI image specification, layer.md.
package layer

import (
	"archive/tar"
	"path"
	"strings"
)

// Kind is what engines make of a member.
type Kind uint8

const (
	// None is a member that makes no file: a pax global header, the root directory,
	// or a mark of AUFS.
	None Kind = iota
	// File is a regular file. Its content may be stored as a sparse file.
	File
	// Dir is a directory.
	Dir
	// Symlink is a symbolic link.
	Symlink
	// Link is a hard link. It has no content, whatever its header gives as size.
	Link
	// Node is a device or a FIFO.
	Node
	// Whiteout removes a name that a layer below has.
	Whiteout
	// Opaque hides what the layers below have in a directory.
	Opaque
	// Unknown is a member of a type that engines refuse, and with it the layer.
	Unknown
)

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// Member is a member of a layer's tar.
type Member struct {
	Kind Kind
	// Path is the member's place in the layer, without "./", "../" and slashes at
	// either end; "" is the root. For a whiteout it is the name that is removed, and
	// for an opaque mark the directory. Links on the way are not followed.
	Path   string
	Header *tar.Header
}

// Of tells what a member is.
func Of(h *tar.Header) Member {
	m := Member{Path: Clean(h.Name), Header: h}
	dir, base := path.Split(m.Path)
	removed, marked := strings.CutPrefix(base, whiteout)
	switch {
	case h.Typeflag == tar.TypeXGlobalHeader || m.Path == "":
	case base == opaque:
		m.Kind, m.Path = Opaque, strings.TrimSuffix(dir, "/")
	case marked && !strings.HasPrefix(removed, whiteout):
		m.Kind, m.Path = Whiteout, dir+removed
	case marked:
	default:
		m.Kind = kindOf(h.Typeflag)
	}
	return m
}

func kindOf(typeflag byte) Kind {
	switch typeflag {
	case tar.TypeReg:
		return File
	case tar.TypeDir:
		return Dir
	case tar.TypeSymlink:
		return Symlink
	case tar.TypeLink:
		return Link
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return Node
	}
	return Unknown
}

// Clean returns the path that engines give a name: nothing leads out of the layer.
func Clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// Sparse reports whether a member's content is stored without its holes: then its
// size in the tar is not the file's.
func Sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}
