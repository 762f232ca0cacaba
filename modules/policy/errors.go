package policy

import (
	"errors"
	"fmt"
)

// Errors of reading a policy. What is wrapped around them names the key or the
// line, in one line.
var (
	// ErrPolicy: the policy is not TOML or JSON of the right form, or says
	// what it must not.
	ErrPolicy = errors.New("bad policy")
	// ErrNotSupported: the policy says something that this version of
	// mender-app does not do.
	ErrNotSupported = errors.New("not supported by this version of mender-app")
)

func bad(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrPolicy, key, fmt.Sprintf(format, args...))
}

func unsupported(key string) error {
	return fmt.Errorf("%w: %s: %w", ErrPolicy, key, ErrNotSupported)
}
