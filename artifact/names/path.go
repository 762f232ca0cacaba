package names

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mender-app/mender-app/artifact/clip"
)

const (
	// MaxPath is the greatest length of the name of a file among the manifests, with its
	// directories, in bytes.
	MaxPath = 1014
	// MaxPathPart is the greatest length of a part of such a name, in bytes: no file system
	// of Linux holds more (NAME_MAX).
	MaxPathPart = 255
)

// CheckPath returns an error unless s can be the name of a file or directory in a release or
// beside it. A name is printed on terminals and in logs, so each of its characters can be
// printed. Names that differ only in case are different names. The error has no control
// characters.
func CheckPath(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("the name of the file is empty")
	case len(s) > MaxPath:
		return fmt.Errorf("the name %q has %d bytes, the maximum is %d: rename it", clip.Text(s), len(s), MaxPath)
	case !utf8.ValidString(s):
		return fmt.Errorf("the name %q is not UTF-8: rename it", clip.Text(s))
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the name %q has a character that cannot be printed: rename it", clip.Text(s))
	}
	for part := range strings.SplitSeq(s, "/") {
		if len(part) > MaxPathPart {
			return fmt.Errorf("the name %q has %d bytes, and no file system holds more than %d: rename it", clip.Text(part), len(part), MaxPathPart)
		}
	}
	return nil
}
