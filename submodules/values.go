package submodules

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mender-app/mender-app/artifact/input"
)

// Bounds of the values of an application.
const (
	MaxValues     = 256
	MaxValuesFile = 64 << 10 // bytes
	maxName       = 128
	maxValue      = 1 << 10
	valueQuotes   = "'"
)

// valueReserved are prefixes of variables that other programs read.
var valueReserved = []string{"COMPOSE_", "DOCKER_", "GIT_", "BUILDKIT_", "BUILDX_", "MENDER_APP_"}

// CheckValue checks a value: its name is a variable's name, and the value is one line
// without a single quote.
func CheckValue(name, value string) error {
	const letters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if name == "" || len(name) > maxName || strings.Trim(name, letters+"0123456789") != "" || !strings.Contains(letters, name[:1]) {
		return fmt.Errorf("a value's name has letters, digits and underscores, at most %d, and does not begin with a digit", maxName)
	}
	for _, p := range valueReserved {
		if strings.HasPrefix(name, p) {
			return fmt.Errorf("%s: names that begin with %s belong to other programs", name, p)
		}
	}
	bad := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(valueQuotes, r) }
	if len(value) > maxValue || !utf8.ValidString(value) || strings.ContainsFunc(value, bad) {
		return fmt.Errorf("%s: a value is one printable line of at most %d bytes, without a single quote", name, maxValue)
	}
	return nil
}

// EncodeValues writes values as lines NAME='VALUE', sorted, which a shell can read.
func EncodeValues(values map[string]string) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&b, "%s='%s'\n", name, values[name])
	}
	return []byte(b.String())
}

// ReadValues reads a file of lines NAME=VALUE, where the value may be in quotes. Empty lines
// and lines that begin with # are ignored.
func ReadValues(file string) (map[string]string, error) {
	data, err := input.Read(file, MaxValuesFile)
	if err != nil {
		return nil, err
	}
	return ParseValues(file, data)
}

// ParseValues reads values as ReadValues does; file is for errors.
func ParseValues(file string, data []byte) (map[string]string, error) {
	values := map[string]string{}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%s: line %d is not NAME=VALUE", file, number)
		}
		if n := len(value); n > 1 && (value[0] == '\'' || value[0] == '"') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		if err := CheckValue(name, value); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, number, err)
		}
		values[name] = value
	}
	if len(values) > MaxValues {
		return nil, fmt.Errorf("%s has more than %d values", file, MaxValues)
	}
	return values, nil
}

// writeValues writes the values into a new file in dir.
func writeValues(dir string, values map[string]string) (string, error) {
	f, err := os.CreateTemp(dir, "values-*.env")
	if err != nil {
		return "", err
	}
	_, err = f.Write(EncodeValues(values))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return f.Name(), err
}
