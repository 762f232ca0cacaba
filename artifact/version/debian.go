package version

import (
	"cmp"
	"strings"
)

// Debian's order is written here because the library for it, go-deb-version,
// reads numbers into Go's int: on 32-bit ARM all numbers above 2147483647 compare
// equal, and versions that are dates (20261123120000) have such numbers. The
// algorithm is that of deb-version(7); the test asks dpkg.

// debianVersion reports whether dpkg takes s for a version:
// [epoch:]upstream[-revision].
func debianVersion(s string) bool {
	epoch, rest, ok := strings.Cut(s, ":")
	if ok && (epoch == "" || strings.Trim(epoch, "0123456789") != "" || len(epoch) > 9) {
		return false
	}
	if !ok {
		rest = s
	}
	if rest == "" || !isDigit(rest[0]) || strings.HasSuffix(rest, "-") {
		return false
	}
	revision := strings.LastIndexByte(rest, '-')
	for i := range len(rest) {
		switch c := rest[i]; {
		case isDigit(c), isLetter(c), c == '.', c == '+', c == '~', c == '-':
		case c == ':' && ok && (revision < 0 || i < revision): // allowed in the upstream version, after an epoch
		default:
			return false
		}
	}
	return true
}

// compareDebian compares two texts that debianVersion accepts.
func compareDebian(a, b string) int {
	ea, ua, ra := splitDebian(a)
	eb, ub, rb := splitDebian(b)
	return cmp.Or(compareNumbers(ea, eb), comparePart(ua, ub), comparePart(ra, rb))
}

func splitDebian(s string) (epoch, upstream, revision string) {
	if before, rest, ok := strings.Cut(s, ":"); ok {
		epoch, s = before, rest
	}
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		return epoch, s[:i], s[i+1:]
	}
	return epoch, s, ""
}

// comparePart compares two upstream versions, or two revisions: texts without
// digits and numbers in turn.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		var ta, tb, na, nb string
		ta, a = span(a, false)
		tb, b = span(b, false)
		if c := compareTexts(ta, tb); c != 0 {
			return c
		}
		na, a = span(a, true)
		nb, b = span(b, true)
		if c := compareNumbers(na, nb); c != 0 {
			return c
		}
	}
	return 0
}

// span splits s after its first digits (or after what comes before them).
func span(s string, digits bool) (first, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) == digits {
		i++
	}
	return s[:i], s[i:]
}

// compareNumbers compares decimal numbers of any length; none is 0.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// compareTexts compares texts without digits: "~" sorts before the end, the
// end before letters, letters before the rest.
func compareTexts(a, b string) int {
	for i := range max(len(a), len(b)) {
		if c := cmp.Compare(weight(a, i), weight(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

func weight(s string, i int) int {
	switch {
	case i >= len(s):
		return 0
	case s[i] == '~':
		return -1
	case isLetter(s[i]):
		return int(s[i])
	}
	return int(s[i]) + 256
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
