package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a page, so that a browser shows any artifact. With these it has less
// than 8 MiB; a test makes the largest one.
const (
	maxRows = 5000      // of all lists
	maxList = 500       // rows of one list
	maxText = 512 << 10 // bytes of all texts, before they are escaped
	maxWord = 400       // bytes of one text
)

// bounds is what a page may still have.
type bounds struct{ rows, text int }

func newBounds() *bounds { return &bounds{maxRows, maxText} }

// word makes a text out of an artifact fit for a page.
func (b *bounds) word(s string) string {
	s = visible(s, min(maxWord, max(b.text, 0)))
	b.text -= len(s)
	return s
}

// words is word for each of a list, which it may cut short.
func (b *bounds) words(list []string) (fit []string) {
	left := each(b, list, func(s string) { fit = append(fit, b.word(s)) })
	if left > 0 {
		fit = append(fit, more(left))
	}
	return fit
}

// each calls f for the elements for which the page has room, and returns how many
// are left.
func each[T any](b *bounds, list []T, f func(T)) (left int) {
	for i, v := range list {
		if i == maxList || b.rows == 0 || b.text <= 0 {
			return len(list) - i
		}
		b.rows--
		f(v)
	}
	return 0
}

// more says that some were left out; "" if none was.
func more(left int) string {
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("and %d more, which --json names", left)
}

// visible is the text in printable characters, and at most n bytes and an ellipsis.
// Others are written as Go does it: a character that turns the direction of text
// would make one name look like another.
func visible(s string, n int) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		part := s[:size]
		switch {
		case r == utf8.RuneError && size == 1:
			part = fmt.Sprintf(`\x%02x`, s[0])
		case !unicode.IsPrint(r):
			part = strings.Trim(strconv.QuoteRune(r), "'")
		}
		if b.Len()+len(part) > n {
			b.WriteString("…")
			break
		}
		b.WriteString(part)
		s = s[size:]
	}
	return b.String()
}
