// Package tarheader reads the header blocks of tar members and models them: the
// headers of a new tar are coded against those of an old one. It never changes a
// header, so a rebuilt tar is the same byte for byte.
package tarheader

import (
	"bytes"
	"cmp"
	"errors"
	"path"
	"strconv"
	"strings"
)

// Block is the size of a block of a tar.
const Block = 512

// Limits of a member. A tar that exceeds one of them is not split into members.
const (
	MaxBlocks = 1 << 18 // bytes of all header blocks
	MaxPath   = 1 << 12 // bytes of a path
	MaxSize   = 1 << 50 // bytes of the content
)

// A Header has what the delta needs from all header blocks of one tar member.
// (POSIX.1-2017 pax; GNU tar manual, "Basic Tar Format".)
type Header struct {
	Path   string // cleaned; "" if it cannot name a file
	Link   string // where a link leads, as it is
	Type   byte
	Size   int64 // of the content that follows, without padding
	Sparse bool
	Odd    bool // a store may split its tar in another way
	ext    int  // bytes of the header blocks before the main one
}

// File reports whether the member's content is a file that can be read back from
// a store under its path.
func (m *Header) File() bool {
	return (m.Type == '0' || m.Type == 0) && !m.Sparse && m.Path != "" &&
		!strings.HasPrefix(path.Base(m.Path), ".wh.")
}

// ErrHeader is wrapped by every error about header blocks that do not parse or
// exceed a limit.
var ErrHeader = errors.New("not a tar header")

// Next parses the blocks so far and returns how many more bytes belong to them;
// 0 if they are complete. It needs only the blocks so far, so that a reader can call
// it after each block.
func (m *Header) Next(raw []byte) (int, error) {
	if len(raw) == 0 {
		return Block, nil
	}
	*m = Header{}
	var long, longLink, pax, paxLink string
	size := int64(-1)
	for off := 0; off < len(raw); {
		if off+Block > len(raw) {
			return off + Block - len(raw), nil
		}
		h := raw[off : off+Block]
		n, ok := tarNumber(h[124:136])
		if !ok {
			return 0, ErrHeader
		}
		t := h[156]
		switch t {
		case 'x', 'g', 'L', 'K':
			if n > MaxBlocks {
				return 0, ErrHeader
			}
			pad := int(n+Block-1) / Block * Block
			end := off + Block + pad
			if end+Block > len(raw) {
				return end + Block - len(raw), nil
			}
			body := raw[off+Block : off+Block+int(n)]
			switch t {
			case 'L':
				long = cstring(body)
			case 'K':
				longLink = cstring(body)
			case 'g':
				m.Odd = true
			case 'x':
				if !paxRecords(body, func(k, v string) {
					switch {
					case k == "path":
						pax = v
					case k == "linkpath":
						paxLink = v
					case k == "size":
						if s, err := strconv.ParseInt(v, 10, 64); err == nil && s >= 0 {
							size = s
						} else {
							size = -2
						}
					case strings.HasPrefix(k, "GNU.sparse."):
						m.Sparse, m.Odd = true, true
					}
				}) || size == -2 {
					return 0, ErrHeader
				}
			}
			off = end
			continue
		}
		m.ext = off
		m.Type = t
		if size >= 0 {
			n = size
		}
		if n > MaxSize {
			return 0, ErrHeader
		}
		m.Size = n
		name := cstring(h[:100])
		if string(h[257:263]) == "ustar\x00" && h[345] != 0 {
			name = cstring(h[345:500]) + "/" + name
		}
		if long != "" {
			name = long
		}
		if pax != "" {
			name = pax
		}
		m.Path = CleanPath(name)
		m.Link = cmp.Or(paxLink, longLink, cstring(h[157:257]))
		off += Block
		switch t {
		case '1', '2', '3', '4', '5', '6':
			m.Odd = m.Odd || m.Size > 0 // such as a hard link that gives the size of its file
			m.Size = 0
		case 'S':
			m.Sparse, m.Odd = true, true
			more := h[482] != 0
			for more {
				if off+Block > len(raw) {
					return off + Block - len(raw), nil
				}
				more = raw[off+504] != 0
				off += Block
			}
		}
		if off != len(raw) {
			return 0, ErrHeader
		}
	}
	if len(raw) > MaxBlocks {
		return 0, ErrHeader
	}
	return 0, nil
}

// CleanPath returns a path as the delta names it: without "./", "../" or a leading
// slash; "" if it cannot name a file.
func CleanPath(s string) string {
	s = path.Clean("/" + s)[1:]
	if len(s) > MaxPath || strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return s
}

func cstring(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// tarNumber reads an octal or a base-256 field.
func tarNumber(b []byte) (int64, bool) {
	if b[0]&0x80 != 0 {
		var v uint64
		for i, c := range b {
			if i == 0 {
				c &= 0x7f
			}
			if v>>55 != 0 {
				return 0, false
			}
			v = v<<8 | uint64(c)
		}
		return int64(v), b[0]&0x40 == 0
	}
	s := strings.Trim(string(b), " \x00")
	if s == "" {
		return 0, true
	}
	v, err := strconv.ParseInt(s, 8, 64)
	return v, err == nil && v >= 0
}

// paxRecords calls f for each "length key=value\n" record.
func paxRecords(b []byte, f func(k, v string)) bool {
	for len(b) > 0 {
		sp := bytes.IndexByte(b, ' ')
		if sp < 1 {
			return false
		}
		n, err := strconv.Atoi(string(b[:sp]))
		if err != nil || n <= sp+1 || n > len(b) || b[n-1] != '\n' {
			return false
		}
		k, v, ok := strings.Cut(string(b[sp+1:n-1]), "=")
		if !ok {
			return false
		}
		f(k, v)
		b = b[n:]
	}
	return true
}

// tarSum returns the header checksum: the sum of its bytes, with blanks for the
// checksum's own field.
func tarSum(h []byte) int {
	sum := 8 * int(0x20)
	for i, c := range h {
		if i < 148 || i >= 156 {
			sum += int(c)
		}
	}
	return sum
}
