package policy

import (
	"errors"
	"fmt"
)

// Errors of reading a policy. The wrapping text names the key or the line, in one
// line.
var (
	// ErrPolicy: the policy is not TOML or JSON of the right form, or has a value
	// that is not allowed.
	ErrPolicy = errors.New("bad policy")
)

func bad(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrPolicy, key, fmt.Sprintf(format, args...))
}
