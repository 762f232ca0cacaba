package submodules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
)

// Config says how a Module makes its calls. The zero value is valid.
type Config struct {
	// Log takes each line a sub-module writes to stderr, without the newline.
	Log func(line string)
	// Deadline bounds each call; 0 leaves it to the context.
	Deadline time.Duration
	// KillAfter is the time between TERM and KILL; 0 means 10 seconds.
	KillAfter time.Duration
	// ConfigDir is passed as MENDER_APP_CONFIG_DIR if set.
	ConfigDir string
	// Store is passed as MENDER_APP_STORE if set: the directory that has all applications.
	Store string
	// Env is added unchanged to each call's environment ("NAME=value"). It comes from
	// the operator's configuration or a test, never from an artifact.
	Env []string
}

// Module is an installed sub-module. Client has a method for each verb.
type Module struct {
	Name   string // the orchestrator
	Path   string // the executable
	Config Config
}

// Find returns the sub-module for an orchestrator. The error is a
// *NotFoundError or a *NotExecutableError, or says what is wrong with the name.
// Find does not detect an executable for another architecture: the first call returns
// a *NotExecutableError.
func Find(dir, orchestrator string) (*Module, error) {
	if err := names.Check(orchestrator); err != nil {
		return nil, fmt.Errorf("orchestrator: %w", err)
	}
	path := filepath.Join(dir, orchestrator)
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &NotFoundError{Orchestrator: orchestrator, Path: path}
	case err != nil:
		return nil, &NotExecutableError{Path: path, Reason: err.Error()}
	case !fi.Mode().IsRegular():
		return nil, &NotExecutableError{Path: path, Reason: "it is not a file"}
	case fi.Mode().Perm()&0o111 == 0:
		return nil, &NotExecutableError{Path: path, Reason: "it is not executable; chmod +x it or install its package again"}
	}
	return &Module{Name: orchestrator, Path: path}, nil
}
