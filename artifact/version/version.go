// Package version orders the versions of applications. app-gen and the device use
// it, and get the same answer on every processor.
package version

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/mender-app/mender-app/artifact/clip"
)

// ErrNoVersion: a text is neither a semantic version nor a Debian version, so it
// cannot be ordered.
var ErrNoVersion = errors.New("not a version that can be ordered")

// maxLength bounds the texts that are compared, in bytes.
const maxLength = 512

// Compare returns a negative number if a is the older version, a positive one
// if b is, and 0 if neither is. A "v" before the first digit is ignored.
//
// Two semantic versions (https://semver.org, three numbers) are compared as
// such: 1.2.3-rc.1 is older than 1.2.3, and what follows "+" does not count.
// All other pairs are compared as dpkg does (deb-version(7)): 1.2.3-1 is newer than
// 1.2, and "~" sorts before the end. The error is an ErrNoVersion, which names the
// text.
//
// Compare is not a total order: of several versions, some semantic and some not,
// there may be no order that agrees with Compare on each pair.
func Compare(a, b string) (int, error) {
	if err := Check(a); err != nil {
		return 0, err
	}
	if err := Check(b); err != nil {
		return 0, err
	}
	a, b = withoutV(a), withoutV(b)
	if semantic(a) && semantic(b) {
		return semver.Compare("v"+a, "v"+b), nil
	}
	return compareDebian(a, b), nil
}

// semantic reports whether s is a semantic version. The library also accepts one or two
// numbers.
func semantic(s string) bool {
	numbers, _, _ := strings.Cut(s, "-")
	numbers, _, _ = strings.Cut(numbers, "+")
	return strings.Count(numbers, ".") == 2 && semver.IsValid("v"+s)
}

// Check returns an ErrNoVersion if s cannot be ordered: it is empty, longer
// than 512 bytes, does not begin with a digit (after a "v"), or has characters other
// than letters, digits and ". + - : ~".
func Check(s string) error {
	if len(s) > maxLength {
		return fmt.Errorf("%w: %d bytes", ErrNoVersion, len(s))
	}
	if !debianVersion(withoutV(s)) {
		return fmt.Errorf("%w: %q", ErrNoVersion, s)
	}
	return nil
}

// withoutV removes the "v" that some projects write before a version.
func withoutV(s string) string {
	if rest, ok := strings.CutPrefix(s, "v"); ok && rest != "" && isDigit(rest[0]) {
		return rest
	}
	return s
}

// Triple returns the numbers at the beginning of an engine's version,
// major.minor.patch, in a form that Compare takes: "1.29.4" of "v1.29.4+k3s1"
// and of "1.29.4-gke.100". The text after the numbers usually says who built the
// engine, not how old it is. A missing patch is "0"; parts tells how many numbers
// there were, 2 or 3. The error is an ErrNoVersion.
func Triple(s string) (triple string, parts int, err error) {
	rest := withoutV(s)
	var numbers []string
	for len(numbers) < 3 {
		n := 0
		for n < len(rest) && isDigit(rest[n]) {
			n++
		}
		if n == 0 || n > maxDigits {
			return "", 0, fmt.Errorf("%w: %q: want major.minor or major.minor.patch", ErrNoVersion, clip.Text(s))
		}
		number := strings.TrimLeft(rest[:n], "0")
		if number == "" {
			number = "0"
		}
		numbers = append(numbers, number)
		rest = rest[n:]
		if len(rest) < 2 || rest[0] != '.' || !isDigit(rest[1]) {
			break
		}
		rest = rest[1:]
	}
	if len(numbers) < 2 {
		return "", 0, fmt.Errorf("%w: %q: want major.minor or major.minor.patch", ErrNoVersion, clip.Text(s))
	}
	parts = len(numbers)
	if parts == 2 {
		numbers = append(numbers, "0")
	}
	return strings.Join(numbers, "."), parts, nil
}

// maxDigits bounds a number of a Triple: it fits 64 bits.
const maxDigits = 18

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
