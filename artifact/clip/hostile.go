package clip

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Hostile reports whether a terminal or another reader could take a character as a command
// or for another text: control characters but tabs and the ends of lines, those of one byte
// above 127 (C1) among them, separators of lines and paragraphs, characters that cannot be
// seen, such as those that change the text's direction, and what is no character. The two
// joiners, which several scripts need, are harmless.
func Hostile(r rune) bool {
	const nonJoiner, joiner = 0x200C, 0x200D
	switch {
	case r == '\t', r == '\n', r == nonJoiner, r == joiner:
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7F
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}

// Quote writes hostile characters of a text as they are written in Go and JSON: \u202e. Bytes
// that are no UTF-8 become U+FFFD.
func Quote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return Hostile(r) || r == utf8.RuneError }) {
		return s // mostly
	}
	var out strings.Builder
	for _, r := range s {
		if Hostile(r) {
			q := strconv.QuoteRuneToASCII(r)
			out.WriteString(q[1 : len(q)-1])
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// JSON writes hostile characters of a JSON text as escapes. The text means the same: they can
// be in strings alone.
func JSON(text []byte) []byte {
	hostile := func(r rune) bool { return r >= 0x7F && Hostile(r) } // below, JSON escapes them itself
	if !bytes.ContainsFunc(text, hostile) {
		return text // mostly
	}
	var out bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !hostile(r):
			out.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}

// JSONWriter passes on JSON texts as [JSON] writes them. Each Write has whole characters.
func JSONWriter(w io.Writer) io.Writer { return writer{w, JSON} }

// TextWriter passes on texts as [Quote] writes them. Each Write has whole characters.
func TextWriter(w io.Writer) io.Writer {
	return writer{w, func(text []byte) []byte { return []byte(Quote(string(text))) }}
}

type writer struct {
	w    io.Writer
	make func([]byte) []byte
}

// Unwrap returns what is written to.
func (w writer) Unwrap() io.Writer { return w.w }

func (w writer) Write(p []byte) (int, error) {
	if _, err := w.w.Write(w.make(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
