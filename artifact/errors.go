package artifact

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that a caller can test for. The text of what wraps them says what was
// found and where, in one line.
var (
	// ErrMetadata: the metadata is missing, is not JSON, or has a value that is
	// not allowed.
	ErrMetadata = errors.New("bad metadata")
	// ErrPayload: a payload is damaged or malformed, or has a member that is not
	// allowed.
	ErrPayload = errors.New("bad payload")
	// ErrTooLarge: a payload unpacks to more than was announced, or has more
	// or larger parts than allowed.
	ErrTooLarge = errors.New("payload beyond its limits")
	// ErrSpool: the payload's members come in an order that cannot be streamed,
	// and there is no directory, or not enough space, to keep them.
	ErrSpool = errors.New("payload cannot be spooled")
)

// RequiresError reports that the artifact needs features that this reader does not
// have. The caller must not use any part of the artifact.
type RequiresError struct {
	// Application is the application's name. It is "" if the artifact does not
	// have the name in the form that this reader knows.
	Application string
	Features    []string
}

func (e *RequiresError) Error() string {
	return fmt.Sprintf("the artifact requires %s, which this version of mender-app does not have: update mender-app first", strings.Join(e.Features, ", "))
}
