package delta

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
)

const block = 512

// meta is what all header blocks of one tar member say, as far as the delta
// needs it. (POSIX.1-2017 pax; GNU tar manual, "Basic Tar Format".)
type meta struct {
	path   string // cleaned; "" if it cannot name a file
	typ    byte
	size   int64 // of the content that follows, without padding
	sparse bool
	ext    int // bytes of the header blocks before the main one
	odd    bool
}

// file says whether the member's content is a file that can be read back from
// a store under its path.
func (m *meta) file() bool {
	return (m.typ == '0' || m.typ == 0) && !m.sparse && m.path != "" &&
		!strings.HasPrefix(path.Base(m.path), ".wh.")
}

var errMeta = errors.New("not a tar header")

// next tells how the header blocks go on: given all of the blocks so far, how
// many bytes more belong to them; 0 if they are complete. It looks at no more
// than it must, so that a reader can call it over and over.
func (m *meta) next(raw []byte) (int, error) {
	if len(raw) == 0 {
		return block, nil
	}
	*m = meta{}
	var long, pax string
	size := int64(-1)
	for off := 0; off < len(raw); {
		if off+block > len(raw) {
			return off + block - len(raw), nil
		}
		h := raw[off : off+block]
		n, ok := tarNumber(h[124:136])
		if !ok {
			return 0, errMeta
		}
		t := h[156]
		switch t {
		case 'x', 'g', 'L', 'K':
			if n > maxMeta {
				return 0, errMeta
			}
			pad := int(n+block-1) / block * block
			end := off + block + pad
			if end+block > len(raw) {
				return end + block - len(raw), nil
			}
			body := raw[off+block : off+block+int(n)]
			switch t {
			case 'L':
				long = cstring(body)
			case 'g':
				m.odd = true
			case 'x':
				if !paxRecords(body, func(k, v string) {
					switch {
					case k == "path":
						pax = v
					case k == "size":
						if s, err := strconv.ParseInt(v, 10, 64); err == nil && s >= 0 {
							size = s
						} else {
							size = -2
						}
					case strings.HasPrefix(k, "GNU.sparse."):
						m.sparse = true
					}
				}) || size == -2 {
					return 0, errMeta
				}
			}
			off = end
			continue
		}
		m.ext = off
		m.typ = t
		if size >= 0 {
			n = size
		}
		if n > maxObject {
			return 0, errMeta
		}
		m.size = n
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
		m.path = cleanPath(name)
		off += block
		switch t {
		case '1', '2', '3', '4', '5', '6':
			m.size = 0
		case 'S':
			m.sparse, m.odd = true, true
			more := h[482] != 0
			for more {
				if off+block > len(raw) {
					return off + block - len(raw), nil
				}
				more = raw[off+504] != 0
				off += block
			}
		}
		if off != len(raw) {
			return 0, errMeta
		}
	}
	if len(raw) > maxMeta {
		return 0, errMeta
	}
	return 0, nil
}

func cleanPath(s string) string {
	s = path.Clean("/" + s)[1:]
	if len(s) > maxPath || strings.IndexByte(s, 0) >= 0 {
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

// tarSum is the header checksum: the sum of its bytes, its own field as blanks.
func tarSum(h []byte) int {
	sum := 8 * int(0x20)
	for i, c := range h {
		if i < 148 || i >= 156 {
			sum += int(c)
		}
	}
	return sum
}

// member is one member of a tar on the build host.
type member struct {
	meta
	raw []byte // header blocks
	off int64  // of the content
}

// tarWalk reads a tar's headers one after the other; it skips the contents.
type tarWalk struct {
	r    io.ReaderAt
	size int64
	off  int64 // of the next header
	raw  []byte
}

// next returns the next member, of which raw is valid until the next call. At
// io.EOF off is where the trailing blocks begin.
func (t *tarWalk) next() (member, error) {
	var m member
	t.raw = t.raw[:0]
	for {
		n, err := m.next(t.raw)
		if err != nil {
			return m, err
		}
		if n == 0 {
			break
		}
		have := len(t.raw)
		if t.off+int64(have)+int64(n) > t.size || have+n > maxMeta {
			if have == 0 {
				return m, io.EOF
			}
			return m, errMeta
		}
		t.raw = append(t.raw, make([]byte, n)...)
		if k, err := t.r.ReadAt(t.raw[have:], t.off+int64(have)); k < n {
			return m, err
		}
		if have == 0 && bytes.Count(t.raw, []byte{0}) == block {
			return m, io.EOF
		}
		if have == 0 {
			if v, ok := tarNumber(t.raw[148:156]); !ok || int(v) != tarSum(t.raw) {
				return m, errMeta
			}
		}
	}
	m.raw = t.raw
	m.off = t.off + int64(len(t.raw))
	pad := -m.size & (block - 1)
	if m.size > t.size-m.off || m.off+m.size+pad > t.size {
		return m, errMeta
	}
	t.off = m.off + m.size + pad
	return m, nil
}
