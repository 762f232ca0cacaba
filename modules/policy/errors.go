package policy

import (
	"errors"
	"fmt"
)

// Errors of reading a policy. The text of what wraps them names the key or the line,
// in one line.
var (
	// ErrPolicy: the policy is not TOML or JSON of the right form, or has a value
	// that is not allowed.
	ErrPolicy = errors.New("bad policy")
	// ErrNotSupported: the policy has a key or a value that this version of
	// mender-app does not support.
	ErrNotSupported = errors.New("not supported by this version of mender-app")
)

func bad(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrPolicy, key, fmt.Sprintf(format, args...))
}

func unsupported(key string) error {
	return fmt.Errorf("%w: %s: %w", ErrPolicy, key, ErrNotSupported)
}
