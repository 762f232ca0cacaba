package artifact

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/image"
)

// CheckURL returns an error unless s can be the URL of an image, as orchestrators
// write it ("registry.example:5000/web:1@sha256:…"). It has 1 to 512 bytes, does
// not start with "-", and has no spaces, control characters or "..". It is not in
// the domain of the names that devices assign themselves (image.InOwnDomain).
func CheckURL(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("an image has no URL")
	case len(s) > maxText:
		return fmt.Errorf("an image's URL has %d bytes", len(s))
	case s[0] == '-' || strings.Contains(s, ".."):
		return fmt.Errorf("malformed URL %q of an image", clip.Text(s))
	case image.InOwnDomain(s):
		return fmt.Errorf("%q is a name that devices assign themselves: it belongs to an installed application", clip.Text(s))
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return fmt.Errorf("malformed URL %q of an image", clip.Text(s))
		}
	}
	return nil
}

// checkText checks that a text is bounded, printable and a single line.
func checkText(field, s string) error {
	if len(s) > maxText {
		return fmt.Errorf("%w: %s: longer than %d bytes", ErrMetadata, field, maxText)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: %s: a character that cannot be printed", ErrMetadata, field)
	}
	return nil
}
