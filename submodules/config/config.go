// Package config reads the small configuration files of mender-app:
// mender-app.conf and those of the sub-modules. Two forms are accepted:
//
//   - TOML: log_level = "debug", tables give keys such as health.deadline;
//   - assignments as the shell reference has them, PERSISTENT_STORE=/data/app,
//     NAME="a value", export NAME='a value', and persistent_store=/data/app as
//     its older documents write it. They are parsed, never run: an expansion or
//     a command substitution is an error.
//
// Keys are compared without regard to case. The package must not know what any
// key means: callers ask for theirs, and Unknown names the rest.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// maxSize bounds a configuration file, in bytes.
const maxSize = 1 << 20

// Setting is one key of a file.
type Setting struct {
	Key   string // as it is written; with its table, if it has one
	Value string
	Line  int // 0 where the form does not tell
}

// File is a configuration file. The zero value is an empty one.
type File struct {
	name     string
	settings map[string]Setting // by lower-cased key
	asked    map[string]bool
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

// Read reads the file. One that does not exist is an empty one.
func Read(name string) (*File, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Parse(name, nil)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(name, data)
}

// Parse parses data; name is for messages. The error is an *Error.
func Parse(name string, data []byte) (*File, error) {
	f := &File{name: name, settings: map[string]Setting{}, asked: map[string]bool{}}
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
	// "$HOME/x" is a good TOML string, and not what its writer meant: a file of
	// assignments only is never taken for TOML.
	if shape {
		return nil, shellErr
	}
	f.settings = map[string]Setting{}
	if err := f.parseTOML(text); err != nil {
		return nil, err
	}
	return f, nil
}

// parseTOML reads text as TOML; values are strings, integers, floats or booleans.
func (f *File) parseTOML(text string) error {
	var tree map[string]any
	md, err := toml.Decode(text, &tree)
	if err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return &Error{Name: f.name, Line: pe.Position.Line, Err: errors.New(pe.Message)}
		}
		return &Error{Name: f.name, Err: err}
	}
	for _, k := range md.Keys() {
		var v any = tree
		for _, part := range k {
			m, ok := v.(map[string]any)
			if !ok {
				return &Error{Name: f.name, Err: fmt.Errorf("%s: arrays are not used here", k)}
			}
			v = m[part]
		}
		var s string
		switch v := v.(type) {
		case map[string]any:
			continue
		case string:
			s = v
		case int64:
			s = strconv.FormatInt(v, 10)
		case float64:
			s = strconv.FormatFloat(v, 'g', -1, 64)
		case bool:
			s = strconv.FormatBool(v)
		default:
			return &Error{Name: f.name, Err: fmt.Errorf("%s: a %T is not used here", k, v)}
		}
		f.set(strings.Join(k, "."), s, 0)
	}
	return nil
}

func (f *File) set(key, value string, line int) {
	f.settings[strings.ToLower(key)] = Setting{Key: key, Value: value, Line: line}
}

// find returns the first of keys that is set, and remembers that all are known.
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

// String returns the value of the first of keys that is set, else def.
func (f *File) String(def string, keys ...string) string {
	if s, ok := f.find(keys); ok {
		return s.Value
	}
	return def
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

// Unknown returns a message for each setting nobody has asked for, in order.
func (f *File) Unknown() []string {
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
	var lines []string
	for _, s := range rest {
		lines = append(lines, (&Error{Name: f.name, Line: s.Line, Err: fmt.Errorf("unknown setting %q is ignored", s.Key)}).Error())
	}
	return lines
}
