// Package config reads the small configuration files of mender-app:
// mender-app.conf and those of the sub-modules. Two forms are accepted:
//
//   - TOML: log_level = "debug". Tables give keys such as health.deadline; arrays
//     of strings and of tables are allowed for the keys that the caller names;
//   - assignments as in the shell reference: PERSISTENT_STORE=/data/app,
//     NAME="a value", export NAME='a value', and persistent_store=/data/app as
//     in its older documents. They are parsed, never run: an expansion or a
//     command substitution is an error.
//
// Keys are compared without regard to case. The package must not know what any
// key means: callers ask for their keys, and Unknown names the others.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/mender-app/mender-app/artifact/input"
)

// maxSize bounds a configuration file, in bytes.
const maxSize = 1 << 20

// Setting is one key of a file with its value.
type Setting struct {
	Key   string // as it is written; with its table, if it has one
	Value string
	Line  int // 0 if it is unknown
}

// File is a configuration file. The zero value is an empty one.
type File struct {
	name     string
	settings map[string]Setting // by lower-cased key
	asked    map[string]bool
	arrays   []string // the keys that may be arrays, lower-cased
	lists    map[string][]string
	tables   map[string][]*File
}

// Error is a broken file or value, with its line where it is known.
type Error struct {
	Name string
	Line int
	Err  error
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Name, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Read reads the file. A missing file counts as an empty one. arrays names the keys
// that may have an array of texts or of tables as value; for any other key an array
// is an error.
func Read(name string, arrays ...string) (*File, error) {
	f, err := input.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Parse(name, nil, arrays...)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(name, data, arrays...)
}

// Parse parses data; name is for messages, arrays as for Read. The error is an
// *Error.
func Parse(name string, data []byte, arrays ...string) (*File, error) {
	f := newFile(name)
	for _, key := range arrays {
		f.arrays = append(f.arrays, strings.ToLower(key))
	}
	if len(data) > maxSize {
		return nil, &Error{Name: name, Err: fmt.Errorf("larger than %d bytes", maxSize)}
	}
	if !utf8.Valid(data) {
		return nil, &Error{Name: name, Err: errors.New("not UTF-8 text")}
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	shape, shellErr := f.parseShell(text)
	if shellErr == nil {
		return f, nil
	}
	// In an assignment, "$HOME/x" means an expansion, but it is also a valid TOML
	// string. So a file with only assignments is never read as TOML.
	if shape {
		return nil, shellErr
	}
	f.settings = map[string]Setting{}
	if err := f.parseTOML(text); err != nil {
		return nil, err
	}
	return f, nil
}

func newFile(name string) *File {
	return &File{name: name, settings: map[string]Setting{}, asked: map[string]bool{}, lists: map[string][]string{}, tables: map[string][]*File{}}
}

// parseTOML reads text as TOML; values are strings, integers, floats or
// booleans, and arrays for the keys that may have them.
func (f *File) parseTOML(text string) error {
	var tree map[string]any
	_, err := toml.Decode(text, &tree)
	if err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return &Error{Name: f.name, Line: pe.Position.Line, Err: errors.New(pe.Message)}
		}
		return &Error{Name: f.name, Err: err}
	}
	return f.walk("", tree)
}

// walk adds the settings of a table; prefix is the table's name and a dot.
func (f *File) walk(prefix string, table map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key := prefix + name
		lower := strings.ToLower(key)
		array := slices.Contains(f.arrays, lower)
		switch v := table[name].(type) {
		case map[string]any:
			if err := f.walk(key+".", v); err != nil {
				return err
			}
		case []map[string]any:
			if !array {
				return f.notUsed(key, "arrays are not used here")
			}
			for _, entry := range v {
				sub := newFile(f.name)
				for _, a := range f.arrays {
					if rest, ok := strings.CutPrefix(a, lower+"."); ok {
						sub.arrays = append(sub.arrays, rest)
					}
				}
				if err := sub.walk("", entry); err != nil {
					return err
				}
				f.tables[lower] = append(f.tables[lower], sub)
			}
		case []any:
			if !array {
				return f.notUsed(key, "arrays are not used here")
			}
			list := []string{}
			for _, e := range v {
				text, ok := e.(string)
				if !ok {
					return f.notUsed(key, fmt.Sprintf("a %T is not used in this array", e))
				}
				list = append(list, text)
			}
			f.lists[lower] = list
			f.set(key, strings.Join(list, " "), 0)
		default:
			text, ok := scalar(v)
			if !ok {
				return f.notUsed(key, fmt.Sprintf("a %T is not used here", v))
			}
			f.set(key, text, 0)
		}
	}
	return nil
}

func (f *File) notUsed(key, what string) error {
	return &Error{Name: f.name, Err: fmt.Errorf("%s: %s", key, what)}
}

// scalar writes a TOML value as text.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

func (f *File) set(key, value string, line int) {
	f.settings[strings.ToLower(key)] = Setting{Key: key, Value: value, Line: line}
}

// find returns the first of keys that is set, and marks all of them as known.
func (f *File) find(keys []string) (Setting, bool) {
	var found Setting
	var ok bool
	for _, k := range keys {
		k = strings.ToLower(k)
		if f.asked == nil {
			f.asked = map[string]bool{}
		}
		f.asked[k] = true
		if s, is := f.settings[k]; is && !ok {
			found, ok = s, true
		}
	}
	return found, ok
}

// String returns the value of the first of keys that is set, or def.
func (f *File) String(def string, keys ...string) string {
	if s, ok := f.find(keys); ok {
		return s.Value
	}
	return def
}

// Strings returns the value of the first of keys that is set: the strings of an
// array, or the words of a string, separated by spaces or commas.
func (f *File) Strings(keys ...string) []string {
	s, ok := f.find(keys)
	if !ok {
		return nil
	}
	if list, ok := f.lists[strings.ToLower(s.Key)]; ok {
		return slices.Clone(list)
	}
	return strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

// List returns the value of the first of keys that is set: the strings of an array, or the
// string as the only one.
func (f *File) List(keys ...string) []string {
	s, ok := f.find(keys)
	if !ok {
		return nil
	}
	if list, ok := f.lists[strings.ToLower(s.Key)]; ok {
		return slices.Clone(list)
	}
	return []string{s.Value}
}

// Tables returns the tables [[key]], in order. Any other kind of key is an error.
func (f *File) Tables(key string) ([]*File, error) {
	key = strings.ToLower(key)
	if s, ok := f.find([]string{key}); ok {
		return nil, f.bad(s, "not a table [["+key+"]]")
	}
	return f.tables[key], nil
}

// Bool returns the value of the first of keys that is set, else def: true, yes,
// on, 1 and false, no, off, 0 are accepted.
func (f *File) Bool(def bool, keys ...string) (bool, error) {
	s, ok := f.find(keys)
	if !ok {
		return def, nil
	}
	switch strings.ToLower(s.Value) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0", "":
		return false, nil
	}
	return def, f.bad(s, "neither true nor false")
}

// Int returns the value of the first of keys that is set, else def.
func (f *File) Int(def int64, keys ...string) (int64, error) {
	s, ok := f.find(keys)
	if !ok {
		return def, nil
	}
	n, err := strconv.ParseInt(s.Value, 10, 64)
	if err != nil {
		return def, f.bad(s, "not a whole number")
	}
	return n, nil
}

// Duration returns the value of the first of keys that is set, else def: "90s",
// "2m", or a plain number of seconds. It is never negative.
func (f *File) Duration(def time.Duration, keys ...string) (time.Duration, error) {
	s, ok := f.find(keys)
	if !ok {
		return def, nil
	}
	if n, err := strconv.ParseUint(s.Value, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(s.Value)
	if err != nil || d < 0 {
		return def, f.bad(s, `not a duration such as "90s"`)
	}
	return d, nil
}

func (f *File) bad(s Setting, what string) error {
	return &Error{Name: f.name, Line: s.Line, Err: fmt.Errorf("%s: %q is %s", s.Key, s.Value, what)}
}

// Unknown returns a message for each setting that was never read, in order.
func (f *File) Unknown() []string {
	var lines []string
	for _, s := range f.Unasked() {
		lines = append(lines, f.unknown(s, " is ignored").Error())
	}
	return lines
}

func (f *File) unknown(s Setting, what string) error {
	return &Error{Name: f.name, Line: s.Line, Err: fmt.Errorf("unknown setting %q%s", s.Key, what)}
}

// RefuseUnknown returns an error for the first setting that was never read and whose
// key begins with one of the prefixes ("" is any key). Use it where ignoring a
// misspelt setting would be dangerous.
func (f *File) RefuseUnknown(prefixes ...string) error {
	for _, s := range f.Unasked() {
		for _, p := range prefixes {
			if strings.HasPrefix(strings.ToLower(s.Key), p) {
				return f.unknown(s, "")
			}
		}
	}
	return nil
}

// Unasked returns the settings that were never read, in order.
func (f *File) Unasked() []Setting {
	var rest []Setting
	for k, s := range f.settings {
		if !f.asked[k] {
			rest = append(rest, s)
		}
	}
	sort.Slice(rest, func(i, j int) bool {
		if rest[i].Line != rest[j].Line {
			return rest[i].Line < rest[j].Line
		}
		return rest[i].Key < rest[j].Key
	})
	return rest
}

// Protect makes a file with a password accessible only to its owner.
func Protect(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := fi.Mode().Perm(); mode&0o077 != 0 {
		if err := os.Chmod(path, mode&^0o077); err != nil {
			return fmt.Errorf("%s holds a password and others can read it: %w", path, err)
		}
	}
	return nil
}
