// Package clip keeps foreign text short and readable when a message quotes it: a name
// in an artifact, a server's answer, a program's output. Such text may be megabytes
// long and contain control characters.
package clip

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// most is the length of a quoted text, in bytes.
const most = 100

// Text returns the first 100 bytes of s, with … if there are more. No character is cut
// in half. Quote it with %q if it may have characters that cannot be printed.
func Text(s string) string { return short(s, most) }

// Line returns s as one line of at most the given number of bytes, and … if there are
// more: words are separated by single spaces, and only characters that can be printed
// are left.
func Line(s string, bytes int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	return short(strings.Join(strings.Fields(s), " "), bytes)
}

func short(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	for bytes > 0 && !utf8.RuneStart(s[bytes]) {
		bytes--
	}
	return s[:bytes] + "…"
}

// yamlValue is a value that a YAML parser quotes in an error. Keys of mappings are quoted
// with ", and stay.
var yamlValue = regexp.MustCompile("(anchor) '[^']*'|(cannot unmarshal \\S+|cannot decode \\S+) `.*`|(invalid map key): .*")

// YAML is the text of a YAML parser's error without the values that it quotes: whoever forgot
// the quotes around a password may read it in the error otherwise.
func YAML(err error) string { return yamlValue.ReplaceAllString(err.Error(), "$1$2$3 …") }
