package image

import (
	"errors"
	"fmt"
	"strings"
)

// Errors a caller may branch on. What is wrapped around them says what was
// found and where.
var (
	// ErrFormat: the archive, a manifest or a config is not what it must be.
	ErrFormat = errors.New("bad image archive")
	// ErrTooLarge: something is larger, or there is more of it, than Limits allow.
	ErrTooLarge = errors.New("image archive beyond its limits")
	// ErrMissing: a blob that a manifest names is not in the archive.
	ErrMissing = errors.New("not in the image archive")
	// ErrMismatch: content does not have the digest that names it.
	ErrMismatch = errors.New("content does not match its digest")
)

// PlatformError says that an archive has images, but none that runs on the
// wanted platform.
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
