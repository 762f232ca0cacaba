// Package quickjson reads the usual form of JSON documents in one pass, without
// reflection: encoding/json needs almost three times as many instructions, which a device with
// many applications feels. A caller names the fields that it knows. If a document has anything
// else, such as an unknown field or a null, reading fails, and the caller asks encoding/json,
// which decides what the document means or what is wrong with it. The package never reads a
// value differently from encoding/json.
package quickjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// maxDepth is how deep values may be nested.
const maxDepth = 100

// Reader reads a document. After a failure every method returns the zero value.
type Reader struct {
	rest   []byte
	depth  int
	failed bool
}

// Of reads data, which must not change meanwhile. No returned value refers to it.
func Of(data []byte) *Reader { return &Reader{rest: data} }

// Fail says that the document is not in the usual form.
func (r *Reader) Fail() { r.failed, r.rest = true, nil }

// Whole reports whether all of the document was read.
func (r *Reader) Whole() bool {
	r.next()
	return !r.failed && len(r.rest) == 0
}

// Object reads an object and calls field for each name; field must read the value.
func (r *Reader) Object(field func(name []byte)) {
	r.list('{', '}', func() {
		if r.next() != '"' {
			r.Fail()
			return
		}
		token, plain := r.text()
		if !plain || r.next() != ':' {
			r.Fail()
			return
		}
		r.rest = r.rest[1:]
		field(token[1 : len(token)-1])
	})
}

// Array reads an array and calls element for each value; element must read it.
func (r *Reader) Array(element func()) { r.list('[', ']', element) }

func (r *Reader) list(begin, end byte, each func()) {
	if r.next() != begin || r.depth == maxDepth {
		r.Fail()
		return
	}
	r.rest = r.rest[1:]
	r.depth++
	defer func() { r.depth-- }()
	for first := true; !r.failed; first = false {
		c := r.next()
		switch {
		case c == end:
			r.rest = r.rest[1:]
			return
		case first:
		case c == ',':
			r.rest = r.rest[1:]
		default:
			r.Fail()
			return
		}
		each()
	}
}

// String reads a string.
func (r *Reader) String() (s string) {
	token, plain := r.text()
	switch {
	case r.failed:
	case plain:
		return string(token[1 : len(token)-1])
	case json.Unmarshal(token, &s) != nil:
		r.Fail()
	}
	return s
}

// Strings reads an array of strings.
func (r *Reader) Strings() []string {
	list := []string{}
	r.Array(func() { list = append(list, r.String()) })
	return list
}

// Int reads an integer of at most the given number of bits.
func (r *Reader) Int(bits int) int64 {
	n, err := strconv.ParseInt(string(r.number()), 10, bits)
	if err != nil {
		r.Fail()
	}
	return n
}

// Float reads a number.
func (r *Reader) Float() float64 {
	n, err := strconv.ParseFloat(string(r.number()), 64)
	if err != nil {
		r.Fail()
	}
	return n
}

// Bool reads true or false.
func (r *Reader) Bool() bool {
	if r.next(); r.word("true") {
		return true
	}
	if !r.word("false") {
		r.Fail()
	}
	return false
}

// Time reads a time as time.Time writes it.
func (r *Reader) Time() (t time.Time) {
	if token, _ := r.text(); r.failed || t.UnmarshalJSON(token) != nil {
		r.Fail()
	}
	return t
}

// Raw reads any value but null and returns its text.
func (r *Reader) Raw() []byte { return bytes.Clone(r.raw()) }

// Into reads any value but null with encoding/json.
func (r *Reader) Into(v any) {
	if token := r.raw(); !r.failed && json.Unmarshal(token, v) != nil {
		r.Fail()
	}
}

func (r *Reader) raw() []byte {
	if r.next() == 'n' {
		r.Fail()
	}
	before := r.rest
	r.Skip()
	return before[:len(before)-len(r.rest)]
}

// Skip reads any value.
func (r *Reader) Skip() {
	switch r.next() {
	case '{':
		r.list('{', '}', func() {
			r.text()
			if r.next() != ':' {
				r.Fail()
				return
			}
			r.rest = r.rest[1:]
			r.Skip()
		})
	case '[':
		r.list('[', ']', r.Skip)
	case '"':
		r.text()
	case 't', 'f', 'n':
		if !r.word("true") && !r.word("false") && !r.word("null") {
			r.Fail()
		}
	default:
		r.number()
	}
}

// next returns the next byte without reading it; 0 at the end.
func (r *Reader) next() byte {
	for i, c := range r.rest {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			r.rest = r.rest[i:]
			return c
		}
	}
	r.rest = nil
	return 0
}

// word reads a word, if it comes next.
func (r *Reader) word(text string) bool {
	if len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	r.rest = r.rest[len(text):]
	return true
}

// text reads a string with its quotes. A plain one is ASCII without escapes.
func (r *Reader) text() (token []byte, plain bool) {
	if r.next() != '"' {
		r.Fail()
		return nil, false
	}
	plain = true
	for i := 1; i < len(r.rest); i++ {
		switch c := r.rest[i]; {
		case c == '"':
			token, r.rest = r.rest[:i+1], r.rest[i+1:]
			return token, plain
		case c < ' ':
			r.Fail()
			return nil, false
		case c >= 0x80:
			plain = false
		case c == '\\':
			plain = false
			n := escape(r.rest[i+1:])
			if n == 0 {
				r.Fail()
				return nil, false
			}
			i += n
		}
	}
	r.Fail()
	return nil, false
}

// escape is the length of an escape sequence after its backslash; 0 if it is none.
func escape(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	if strings.IndexByte(`"\/bfnrt`, text[0]) >= 0 {
		return 1
	}
	if text[0] != 'u' || len(text) < 5 {
		return 0
	}
	for _, c := range text[1:5] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return 0
		}
	}
	return 5
}

// number reads a number.
func (r *Reader) number() []byte {
	r.next()
	before := r.rest
	r.one("-")
	ok := r.one("0") || r.digits()
	if ok && r.one(".") {
		ok = r.digits()
	}
	if ok && r.one("eE") {
		r.one("+-")
		ok = r.digits()
	}
	if !ok {
		r.Fail()
		return nil
	}
	return before[:len(before)-len(r.rest)]
}

// one reads one of the characters, if it comes next.
func (r *Reader) one(of string) bool {
	if len(r.rest) == 0 || strings.IndexByte(of, r.rest[0]) < 0 {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// digits reads at least one digit.
func (r *Reader) digits() bool {
	n := 0
	for n < len(r.rest) && r.rest[n] >= '0' && r.rest[n] <= '9' {
		n++
	}
	r.rest = r.rest[n:]
	return n > 0
}
