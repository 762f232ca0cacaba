// Package names has the one rule for the names of applications, orchestrators and
// releases. Such a name is part of the names of directories and executables, it is
// an argument of programs, and it is printed on terminals. So it consists of ASCII
// letters, digits, "_", "." and "-", and begins with a letter or a digit.
//
// The rule has two lengths. A name in an artifact has at most [MaxNew] bytes,
// because the value of a Kubernetes label holds no more. A name that is already on
// a device may have [Max] bytes: the shell reference's store can have longer names,
// and its applications must stay usable.
//
// The package also has the rule for names of variables, and the suffix of encrypted
// secrets.
package names

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// Max is the greatest length of a name on a device, in bytes. With the
	// suffixes that are added to it, it is still a valid file name.
	Max = 128
	// MaxNew is the greatest length of a name in an artifact, in bytes.
	MaxNew = 63
)

// Check returns an error if s cannot be the name of an application, an
// orchestrator or a release on a device. The error says what is wrong; it has no
// control characters and at most a few hundred bytes.
func Check(s string) error {
	switch {
	case s == "":
		return errors.New("the name is empty")
	case len(s) > Max:
		return fmt.Errorf("the name %q… is longer than %d bytes", s[:Max], Max)
	case !alphanumeric(s[0]):
		return fmt.Errorf("the name %q does not begin with a letter or a digit", s)
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '_' && c != '.' && c != '-' {
			return fmt.Errorf("the name %q has characters other than letters, digits, _, . and -", s)
		}
	}
	return nil
}

// CheckNew returns an error unless s can be the name of an application or an
// orchestrator in an artifact: [Check] accepts s, and s has at most [MaxNew] bytes
// and no "..".
func CheckNew(s string) error {
	if err := Check(s); err != nil {
		return err
	}
	switch {
	case len(s) > MaxNew:
		return fmt.Errorf("the name %q is longer than %d bytes", s, MaxNew)
	case strings.Contains(s, ".."):
		return fmt.Errorf(`the name %q has ".."`, s)
	}
	return nil
}

// MaxType is the greatest length of a component's type, in bytes.
const MaxType = 32

// CheckType returns an error unless s can be the type of a component: a word of
// lower-case letters, digits and "-" that begins with a letter or a digit, such
// as image, binary or deb-package.
func CheckType(s string) error {
	switch {
	case s == "":
		return errors.New("the type is empty")
	case len(s) > MaxType:
		return fmt.Errorf("the type %q… is longer than %d bytes", s[:MaxType], MaxType)
	case s[0] == '-':
		return fmt.Errorf("the type %q does not begin with a letter or a digit", s)
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (!alphanumeric(c) || 'A' <= c && c <= 'Z') {
			return fmt.Errorf("the type %q has characters other than lower-case letters, digits and -", s)
		}
	}
	return nil
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
