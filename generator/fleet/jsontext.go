package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// This file reads the JSON of inventories. Package encoding/json takes ten times as long for
// a million devices, because it makes values of all attributes, and two or three count.

// maxDepth is how deep values may lie within each other.
const maxDepth = 64

var errJSON = errors.New("it is no JSON object")

// scanner goes through a text.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\n' || s.b[s.i] == '\r') {
		s.i++
	}
}

// next reports whether c comes next, and goes beyond it.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// each calls f for what is between an opening and a closing bracket, with commas between.
func (s *scanner) each(open, end byte, f func() bool) bool {
	if !s.next(open) {
		return false
	}
	if s.next(end) {
		return true
	}
	for f() {
		if s.next(end) {
			return true
		}
		if !s.next(',') {
			return false
		}
	}
	return false
}

// text goes beyond a text, and returns it with its quotes; nil if there is none.
func (s *scanner) text() []byte {
	if !s.next('"') {
		return nil
	}
	from := s.i - 1
	for {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			return nil
		}
		s.i += n + 1
		slashes := 0
		for s.b[s.i-2-slashes] == '\\' && s.i-2-slashes > from {
			slashes++
		}
		if slashes%2 == 0 {
			return s.b[from:s.i]
		}
	}
}

// value goes beyond a value, and returns it; nil if there is none.
func (s *scanner) value(depth int) []byte {
	s.space()
	from := s.i
	if s.i == len(s.b) || depth > maxDepth {
		return nil
	}
	ok := true
	switch c := s.b[s.i]; {
	case c == '"':
		return s.text()
	case c == '{':
		ok = s.object(depth, func([]byte, []byte) {})
	case c == '[':
		ok = s.each('[', ']', func() bool { return s.value(depth+1) != nil })
	default:
		for s.i < len(s.b) && strings.IndexByte("+-.", s.b[s.i]) >= 0 || s.i < len(s.b) && (s.b[s.i]|0x20 >= 'a' && s.b[s.i]|0x20 <= 'z' || s.b[s.i] >= '0' && s.b[s.i] <= '9') {
			s.i++
		}
		ok = json.Valid(s.b[from:s.i])
	}
	if !ok {
		return nil
	}
	return s.b[from:s.i]
}

// object calls f for the members of an object: the name as it is between its quotes, and
// the value.
func (s *scanner) object(depth int, f func(name, value []byte)) bool {
	return s.each('{', '}', func() bool {
		name := s.text()
		if name == nil || !s.next(':') {
			return false
		}
		value := s.value(depth + 1)
		if value != nil {
			f(name[1:len(name)-1], value)
		}
		return value != nil
	})
}

// found are the values of attributes that count, by their slots.
type found [8][]byte

func (f *found) set(slots map[string]int, name, value []byte) {
	if slot, ok := slots[string(name)]; ok && f[slot] == nil {
		f[slot] = value
	}
}

// attributesIn finds the attributes of a device: members of an object, or of the list that
// is its member "attributes".
func attributesIn(text []byte, slots map[string]int) (found, error) {
	var flat found
	var list []byte
	s := &scanner{b: text}
	ok := s.object(0, func(name, value []byte) {
		flat.set(slots, name, value)
		if string(name) == "attributes" {
			list = value
		}
	})
	if s.space(); !ok || s.i != len(text) {
		return flat, errJSON
	}
	if list == nil {
		return flat, nil
	}
	var named found
	s = &scanner{b: list}
	ok = s.each('[', ']', func() bool {
		var name, value []byte
		ok := s.object(1, func(member, v []byte) {
			switch string(member) {
			case "name":
				name = v
			case "value":
				value = v
			}
		})
		if len(name) < 2 || name[0] != '"' {
			return false
		}
		named.set(slots, name[1:len(name)-1], value)
		return ok
	})
	if !ok {
		return named, errors.New("its attributes are no list of objects with name and value")
	}
	return named, nil
}

// textOf is a value, or the first of a list of values.
func textOf(raw []byte) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	switch raw[0] {
	case '"':
		if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
			return string(inner), nil
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", errors.New("is no text")
		}
		return s, nil
	case '[':
		var list []string
		if err := json.Unmarshal(raw, &list); err != nil {
			return "", errors.New("is a list of other things than texts")
		}
		return strings.Join(list[:min(len(list), 1)], ""), nil
	case 'n':
		return "", nil
	case '{':
		return "", errors.New("is an object, not a text")
	}
	return string(raw), nil
}

// elements reads the elements of a list from a stream, without a look at what is in them.
// It holds one, of at most limit bytes; of a longer one f gets nil. After f the bytes change.
func elements(in *bufio.Reader, limit int, f func(at int, text []byte)) (n int, err error) {
	next := func() (byte, error) {
		c, err := firstByte(in)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			_, _ = in.Discard(1)
		}
		return c, err
	}
	if c, err := next(); err != nil || c != '[' {
		return 0, errors.Join(err, errors.New("it is no list"))
	}
	c, err := next()
	if err == nil && c == ']' {
		return 0, nil
	}
	var text []byte
	for err == nil {
		text = text[:0]
		long := false
		depth, quoted, escaped := 0, false, false
		for {
			if depth == 0 && !quoted && (c == ',' || c == ']') {
				break
			}
			if len(text) < limit {
				text = append(text, c)
			} else {
				long = true
			}
			switch {
			case escaped:
				escaped = false
			case quoted:
				escaped, quoted = c == '\\', c != '"'
			case c == '"':
				quoted = true
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				depth--
			}
			if c, err = in.ReadByte(); err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return n, err
			}
		}
		if n++; long {
			f(n, nil)
		} else {
			f(n, text)
		}
		if c == ']' {
			return n, nil
		}
		c, err = next()
	}
	return n, err
}
