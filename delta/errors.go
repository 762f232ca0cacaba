package delta

import (
	"errors"
	"fmt"
)

// ErrNoObject is what an Old returns for an object it does not have.
var ErrNoObject = errors.New("no such object")

// ErrFormat is wrapped by every error about a delta that is damaged or hostile.
var ErrFormat = errors.New("not a valid delta")

// ErrTooMuchRead says that a delta reads more of the old content than its objects
// and bases allow (FORMAT.md, "Work"). It wraps ErrFormat.
var ErrTooMuchRead = FormatErrorf("it reads more of the old content than its objects and bases allow")

// FormatErrorf returns an error that wraps ErrFormat. It is for the codec.
func FormatErrorf(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, a...))
}

// FeatureError reports that a delta needs a feature that this decoder does not know.
// Nothing was read or written.
type FeatureError struct{ Feature string }

func (e *FeatureError) Error() string {
	return fmt.Sprintf("the delta needs %q, which this version does not know", e.Feature)
}

// Problem says what is wrong with old content.
type Problem string

const (
	NoBase      Problem = "is not there"             // the whole object is missing
	NoFile      Problem = "is missing"               // the object lacks the file
	DamagedFile Problem = "is damaged"               // the file is there with other content
	BadHeaders  Problem = "has other or no metadata" // the object's tar headers are not those expected
)

// OldError says which old content cannot be used, and why.
type OldError struct {
	Base    Base
	Path    string // "" is the object as a whole
	Problem Problem
	// Others is set if several files of one group are damaged and only the group
	// is known. Path and Others are then its first and its last file, either of
	// which may be whole.
	Others string
	Err    error // what the Old said, or nil
}

func (e *OldError) Error() string {
	what := fmt.Sprintf("object %s of old image %q", e.Base.Digest, e.Base.Image)
	switch {
	case e.Others != "":
		what = fmt.Sprintf("more than one file between %q and %q in %s", e.Path, e.Others, what)
	case e.Path != "":
		what = fmt.Sprintf("file %q in %s", e.Path, what)
	}
	s := what + " " + string(e.Problem)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *OldError) Unwrap() error { return e.Err }

// MismatchError reports that a rebuilt object has the wrong digest, although no old
// file was found to be damaged. The sink of the object was aborted.
type MismatchError struct {
	Object ObjectInfo
	Got    Digest
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("rebuilt object %d has digest %s, not %s", e.Object.Index, e.Got, e.Object.Digest)
}
