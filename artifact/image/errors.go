package image

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that a caller can test for. The text of what wraps them says what was
// found and where.
var (
	// ErrFormat: the archive, a manifest or a config is malformed.
	ErrFormat = errors.New("bad image archive")
	// ErrNoPlatform: the config of an image does not say its platform; it is an ErrFormat.
	ErrNoPlatform = fmt.Errorf("%w: image config: no os or architecture", ErrFormat)
	// ErrTooLarge: a size or a number is greater than Limits allow.
	ErrTooLarge = errors.New("image archive beyond its limits")
	// ErrMissing: a blob that a manifest names is not in the archive.
	ErrMissing = errors.New("not in the image archive")
	// ErrMismatch: content does not have the digest that names it.
	ErrMismatch = errors.New("content does not match its digest")
)

// PlatformError reports that no image of an archive runs on the wanted platform.
type PlatformError struct {
	Want Platform
	Have []Platform // sorted, no duplicates
}

func (e *PlatformError) Error() string {
	have := make([]string, len(e.Have))
	for i, p := range e.Have {
		have[i] = p.String()
	}
	return fmt.Sprintf("no image for platform %s; there is %s", e.Want, strings.Join(have, ", "))
}
