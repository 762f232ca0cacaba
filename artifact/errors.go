package artifact

import (
	"errors"
	"fmt"
	"strings"
)

// Errors a caller may branch on. What is wrapped around them says what was
// found and where, in one line.
var (
	// ErrMetadata: the metadata is missing, not JSON, or says what it must not.
	ErrMetadata = errors.New("bad metadata")
	// ErrPayload: a payload is damaged or malformed, or a member of it is not
	// what may be there.
	ErrPayload = errors.New("bad payload")
	// ErrTooLarge: a payload unpacks to more than was announced, or has more
	// or larger parts than allowed.
	ErrTooLarge = errors.New("payload beyond its limits")
	// ErrSpool: the payload's members come in an order that cannot be
	// streamed, and there is no place, or not enough, to keep them.
	ErrSpool = errors.New("payload cannot be spooled")
)

// RequiresError says that the artifact needs features that this reader does
// not have; nothing of it may be used.
type RequiresError struct {
	// Application is the application's name, if the artifact says it in the form
	// that this reader knows; otherwise "".
	Application string
	Features    []string
}

func (e *RequiresError) Error() string {
	return fmt.Sprintf("the artifact requires %s, which this version of mender-app does not have: update mender-app first", strings.Join(e.Features, ", "))
}
