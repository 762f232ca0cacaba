package submodules

import (
	"errors"
	"fmt"
)

// The exit codes of a sub-module.
const (
	CodeDone        = 0   // done; ALIVE, HEALTHY: true
	CodeFailed      = 1   // failed; ALIVE, HEALTHY: false; VERIFY: not whole
	CodeUsage       = 2   // unknown verb or wrong arguments
	CodeRequirement = 3   // something the sub-module needs is missing
	CodeNotFound    = 4   // the component is missing
	CodeContent     = 5   // the content is wrong
	CodeUnhealthy   = 6   // brought up, but not healthy
	CodeSpace       = 7   // no space left
	CodeBase        = 8   // the base of a delta is missing or damaged
	CodeDeadline    = 124 // the deadline passed, or the call was ended by a signal
)

// The meanings of exit codes; a *CallError matches them with errors.Is. On the
// sub-module's side Mark attaches one to an error, and Main turns it into the code.
var (
	ErrFailed      = errors.New("failed")
	ErrUsage       = errors.New("unknown verb or wrong arguments")
	ErrRequirement = errors.New("a requirement is missing")
	ErrNotFound    = errors.New("component not found")
	ErrContent     = errors.New("wrong content")
	ErrUnhealthy   = errors.New("unhealthy")
	ErrSpace       = errors.New("no space left")
	ErrBase        = errors.New("base of the delta missing or damaged")
	ErrDeadline    = errors.New("deadline exceeded")
)

var codes = []struct {
	code int
	err  error
}{
	{CodeUsage, ErrUsage},
	{CodeRequirement, ErrRequirement},
	{CodeNotFound, ErrNotFound},
	{CodeContent, ErrContent},
	{CodeUnhealthy, ErrUnhealthy},
	{CodeSpace, ErrSpace},
	{CodeBase, ErrBase},
	{CodeDeadline, ErrDeadline},
	{CodeFailed, ErrFailed},
}

// marked is an error that also is one of the sentinels above, without the
// sentinel's words in its text.
type marked struct {
	err  error
	mark error
}

func (m *marked) Error() string        { return m.err.Error() }
func (m *marked) Unwrap() error        { return m.err }
func (m *marked) Is(target error) bool { return target == m.mark }

// Mark returns err with the same text, as an error that is also mark (one of this
// package's sentinels). Mark of nil is nil. The innermost mark wins, because it was
// made where the cause was known.
func Mark(err, mark error) error {
	if err == nil {
		return nil
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return err
		}
	}
	return &marked{err: err, mark: mark}
}

// codeErr returns the sentinel of an exit code, ErrFailed for any other.
func codeErr(code int) error {
	for _, c := range codes {
		if c.code == code {
			return c.err
		}
	}
	return ErrFailed
}

// CallError is an unsuccessful call.
type CallError struct {
	Module   string // name of the sub-module
	Verb     string
	Code     int    // exit code; CodeDeadline when the runner ended it; -1 for a signal
	Signal   string // the signal that ended it, if one did
	LastLine string // the last line of stderr, without "error: "
}

func (e *CallError) Error() string {
	s := e.Module + " " + e.Verb
	switch {
	case e.Signal != "" && e.LastLine != "":
		s += ": ended by " + e.Signal + "; it said last: " + e.LastLine
	case e.Signal != "":
		s += ": ended by " + e.Signal
	case e.LastLine != "":
		s += ": " + e.LastLine
	default:
		s += fmt.Sprintf(": exit status %d", e.Code)
	}
	return s
}

// Is matches the sentinel of the exit code. A CallError whose code has no sentinel is
// ErrFailed.
func (e *CallError) Is(target error) bool { return target == codeErr(e.Code) }

// NotFoundError reports that no sub-module is installed for an orchestrator.
type NotFoundError struct {
	Orchestrator string
	Path         string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no sub-module for orchestrator %q: %s is missing; install the package that brings it", e.Orchestrator, e.Path)
}

// Is makes a missing sub-module a missing requirement.
func (e *NotFoundError) Is(target error) bool { return target == ErrRequirement }

// NotExecutableError reports that a sub-module exists but cannot be run.
type NotExecutableError struct {
	Path   string
	Reason string
}

func (e *NotExecutableError) Error() string {
	return fmt.Sprintf("sub-module %s cannot be run: %s", e.Path, e.Reason)
}

// Is makes a sub-module that cannot run a missing requirement.
func (e *NotExecutableError) Is(target error) bool { return target == ErrRequirement }
