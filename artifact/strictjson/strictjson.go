// Package strictjson decodes only JSON that all readers understand alike. Readers
// differ when an object has a key twice, and when a key is written in another
// case: encoding/json takes the last of two, and fills the field "name" from
// "Name"; Mender's client, jq and others do not. The signer of a document and its
// installer could therefore see different content. This package refuses both.
package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/mender-app/mender-app/artifact/clip"
)

// MaxKeys is the maximum number of keys of one object.
const MaxKeys = 4096

// ErrKey: an object has a key that readers understand differently. The wrapping
// error names the key, in one line.
var ErrKey = errors.New("ambiguous JSON")

// Unmarshal is json.Unmarshal, but refuses with ErrKey:
//
//   - an object, at any depth, that has a key twice, or two keys that differ only
//     in case;
//   - an object decoded into a struct that has a field's name in another case;
//   - an object with more than MaxKeys keys.
//
// A type with an UnmarshalJSON of its own gets a document whose keys differ; it
// calls Unmarshal in turn to have the names of its fields checked. After an error v
// may be filled in part, as with json.Unmarshal.
func Unmarshal(b []byte, v any) error {
	if err := check(b, reflect.TypeOf(v)); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// Check refuses the documents that Unmarshal refuses for any type, and anything
// that is not JSON.
func Check(b []byte) error { return check(b, nil) }

func check(b []byte, t reflect.Type) error {
	if !json.Valid(b) { // which bounds the depth as well, to 10000
		var ignored json.RawMessage
		return json.Unmarshal(b, &ignored) // says what is wrong
	}
	_, err := value(b, t)
	return err
}

// value checks the value at the beginning of b, which is valid JSON, and returns
// what comes after it. t is the type it is decoded into, nil if that is not known.
func value(b []byte, t reflect.Type) ([]byte, error) {
	t = target(t)
	b = space(b)
	switch b[0] {
	case '{':
		return object(b, t)
	case '[':
		var elem reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			elem = t.Elem()
		}
		for b = space(b[1:]); b[0] != ']'; {
			var err error
			if b, err = value(b, elem); err != nil {
				return nil, err
			}
			if b = space(b); b[0] == ',' {
				b = b[1:]
			}
		}
		return b[1:], nil
	case '"':
		return b[text(b):], nil
	}
	for len(b) > 0 && !strings.ContainsRune(",]} \t\r\n", rune(b[0])) {
		b = b[1:]
	}
	return b, nil
}

func object(b []byte, t reflect.Type) ([]byte, error) {
	fields := fieldsOf(t)
	keys := make(map[string]string) // folded → as it is written
	for b = space(b[1:]); b[0] != '}'; {
		n := text(b)
		var key string
		if err := json.Unmarshal(b[:n], &key); err != nil {
			return nil, err
		}
		folded := fold(key)
		switch other, twice := keys[folded]; {
		case twice && other == key:
			return nil, fmt.Errorf("%w: the key %q occurs twice", ErrKey, clip.Text(key))
		case twice:
			return nil, fmt.Errorf("%w: the keys %q and %q differ only in case", ErrKey, clip.Text(other), clip.Text(key))
		case len(keys) == MaxKeys:
			return nil, fmt.Errorf("%w: an object with more than %d keys", ErrKey, MaxKeys)
		}
		keys[folded] = key
		var elem reflect.Type
		switch f, known := fields[folded]; {
		case known && f.name != key:
			return nil, fmt.Errorf("%w: the key %q is %q in another case", ErrKey, clip.Text(key), f.name)
		case known:
			elem = f.typ
		case t != nil && t.Kind() == reflect.Map:
			elem = t.Elem()
		}
		var err error
		if b, err = value(space(b[n:])[1:], elem); err != nil { // after the colon
			return nil, err
		}
		if b = space(b); b[0] == ',' {
			b = space(b[1:])
		}
	}
	return b[1:], nil
}

// text returns the length of the string at the beginning of b, with its quotes.
func text(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

func space(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\r' || b[0] == '\n') {
		b = b[1:]
	}
	return b
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// target returns the type that encoding/json fills for t, without pointers. It is
// nil if that is not known: for an interface, or a type that decodes itself.
func target(t reflect.Type) reflect.Type {
	for t != nil {
		switch {
		case t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler):
			return nil
		case t.Kind() != reflect.Pointer:
			return t
		}
		t = t.Elem()
	}
	return nil
}

type field struct {
	name string
	typ  reflect.Type
}

// fieldsOf returns the fields of a struct by their folded names, including those of
// embedded structs. Any other type has none.
func fieldsOf(t reflect.Type) map[string]field {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	fields := make(map[string]field)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields[fold(name)] = field{name, f.Type}
	}
	return fields
}

// fold returns the same text for strings that differ only in case, as
// strings.EqualFold and encoding/json see it: "K" equals the Kelvin sign.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		return least
	}, s)
}
