// Package rules says what a device asks of the files of a Compose project, as far as no
// engine is needed. The sub-module asks it before and after Compose reads the files.
// app-gen asks the same of what it ships, with compose-go in Compose's place. So the two
// cannot differ for reasons in the files. The package must not know engines, stores or
// artifacts.
package rules

import (
	"fmt"
)

// ConfName is the file of the device's settings, below its configuration directory.
const ConfName = "mender-app-docker-compose.conf"

// Settings say what a device's operator allows and forbids.
type Settings struct {
	Outside []string // of OutsideKinds: files of these kinds may lie outside the manifests
	Refuse  []string // of ReachKinds: what no service may have
}

// Refused is an error in the files themselves: no try on any device ends otherwise.
type Refused struct{ err error }

func (r *Refused) Error() string { return r.err.Error() }

// Unwrap returns the cause.
func (r *Refused) Unwrap() error { return r.err }

func refused(format string, args ...any) error { return &Refused{fmt.Errorf(format, args...)} }
