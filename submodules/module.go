package submodules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
)

// Config is how a Module makes its calls. The zero value serves.
type Config struct {
	// Log takes each line a sub-module writes to stderr, without the newline.
	Log func(line string)
	// Deadline bounds each call; 0 leaves it to the context.
	Deadline time.Duration
	// KillAfter is the time between TERM and KILL; 0 means 10 seconds.
	KillAfter time.Duration
	// ConfigDir is passed as MENDER_APP_CONFIG_DIR if set.
	ConfigDir string
	// Env is added to each call's environment as it is ("NAME=value"); it
	// comes from the operator's configuration or a test, never from an
	// artifact.
	Env []string
}

// Module is an installed sub-module. Its methods run one process each, and
// return when that process and everything in its process group has ended.
type Module struct {
	Name   string // the orchestrator
	Path   string // the executable
	Config Config
}

// Find returns the sub-module for an orchestrator. The error is a
// *NotFoundError or a *NotExecutableError, or says what is wrong with the name.
// An executable for another architecture is noticed by the first call, which then
// returns a *NotExecutableError.
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

// Describe asks what the sub-module speaks. One that does not know the verb
// PROTOCOL is described as protocol 1.0 without features.
func (m *Module) Describe(ctx context.Context) (Info, error) {
	old := Info{Protocol: "1.0", Name: m.Name, Features: []string{}}
	var out bytes.Buffer
	// An old sub-module complains about the unknown verb: drop that.
	err := m.run(ctx, Request{Log: func(string) {}}, &out, VerbProtocol)
	var ce *CallError
	if errors.As(err, &ce) {
		if ce.Code == CodeDeadline || ce.Signal != "" {
			return Info{}, err
		}
		return old, nil
	}
	if err != nil {
		return Info{}, err
	}
	var info Info
	// A 1.0 sub-module may exit 0 on what it does not know, and print anything.
	if !info.quick(out.Bytes()) {
		info = Info{}
		if json.Unmarshal(out.Bytes(), &info) != nil {
			return old, nil
		}
	}
	if !strings.HasPrefix(info.Protocol, "1.") {
		return old, nil
	}
	if info.Name == "" {
		info.Name = m.Name
	}
	return info, nil
}

// ExportManifest writes the manifests of the installed application to r.Dir.
func (m *Module) ExportManifest(ctx context.Context, r Request) error {
	return m.run(ctx, r, nil, VerbExportManifest, r.App, r.Dir)
}

// Save writes the component r.URL to r.Path, or to r.Stdout for "-".
func (m *Module) Save(ctx context.Context, r Request) error {
	if r.Path == "-" {
		return m.runTo(ctx, r, r.Stdout, VerbSave, r.App, r.URL, r.Path)
	}
	return m.run(ctx, r, nil, VerbSave, r.App, r.URL, r.Path)
}

// Load brings the component r.URL in from r.Path, or from r.Stdin for "-"
// (feature stream). It reads r.Stdin until the sub-module has ended and at most
// once more; what the sub-module left unread stays unread. An error of r.Stdin
// ends the call and is returned as it is.
func (m *Module) Load(ctx context.Context, r Request) error {
	args := []string{r.App, r.URL, r.Path}
	if r.CurrentURL != "" {
		args = append(args, r.CurrentURL)
	}
	return m.run(ctx, r, nil, VerbLoad, args...)
}

// List returns the components of the application that are there.
func (m *Module) List(ctx context.Context, r Request) ([]Component, error) {
	var out bytes.Buffer
	if err := m.run(ctx, r, &out, VerbList, r.App); err != nil {
		return nil, err
	}
	var list []Component
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		return nil, fmt.Errorf("%s %s: reply: %w", m.Name, VerbList, err)
	}
	return list, nil
}

// Delete removes the application's reference to the component r.URL, and the
// component itself if nothing else uses it. One that is not there is no error.
func (m *Module) Delete(ctx context.Context, r Request) error {
	return m.run(ctx, r, nil, VerbDelete, r.URL, r.App)
}

// Rollout brings up the release in r.Dir, and returns when it is healthy.
func (m *Module) Rollout(ctx context.Context, r Request) error {
	return m.runTimed(ctx, r, VerbRollout, r.App, r.Dir)
}

// Rollback brings the release in r.Dir back, and removes what only the release
// in r.FailedDir had.
func (m *Module) Rollback(ctx context.Context, r Request) error {
	args := []string{r.App, r.Dir}
	if r.FailedDir != "" {
		args = append(args, r.FailedDir)
	}
	return m.runTimed(ctx, r, VerbRollback, args...)
}

// Purge removes everything the application owns; its data only with
// r.PurgeData. r.Dir, which may be empty and may be gone, helps to find it.
func (m *Module) Purge(ctx context.Context, r Request) error {
	args := []string{r.App}
	if r.Dir != "" {
		args = append(args, r.Dir)
	}
	return m.run(ctx, r, nil, VerbPurge, args...)
}

// Stop stops the application without removing anything.
func (m *Module) Stop(ctx context.Context, r Request) error {
	return m.run(ctx, r, nil, VerbStop, r.App, r.Dir)
}

// Start starts the application after Stop.
func (m *Module) Start(ctx context.Context, r Request) error {
	return m.run(ctx, r, nil, VerbStart, r.App, r.Dir)
}

// Alive reports whether everything the application should run is running.
func (m *Module) Alive(ctx context.Context, r Request) (bool, error) {
	return m.ask(ctx, r, VerbAlive)
}

// Healthy reports whether the application is alive, passes its health checks
// and is not restarting.
func (m *Module) Healthy(ctx context.Context, r Request) (bool, error) {
	return m.ask(ctx, r, VerbHealthy)
}

// ask makes a call that prints true or false and exits 0 or 1.
func (m *Module) ask(ctx context.Context, r Request, verb string) (bool, error) {
	var out bytes.Buffer
	err := m.run(ctx, r, &out, verb, r.App)
	reply := strings.TrimSpace(out.String())
	if err == nil {
		switch reply {
		case "true", "": // 1.0 sub-modules may print nothing; the exit code is the answer then
			return true, nil
		case "false":
			return false, nil
		}
		return false, fmt.Errorf("%s %s: the reply is neither true nor false: %.40q", m.Name, verb, reply)
	}
	var ce *CallError
	if errors.As(err, &ce) && ce.Code == CodeFailed && reply == "false" {
		return false, nil
	}
	return false, err
}

// Reqs returns the commands the sub-module needs.
func (m *Module) Reqs(ctx context.Context, r Request) ([]Requirement, error) {
	var out bytes.Buffer
	if err := m.run(ctx, r, &out, VerbReqs); err != nil {
		return nil, err
	}
	var list []Requirement
	for _, line := range strings.Split(out.String(), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		cmd, kind, _ := strings.Cut(line, ":")
		list = append(list, Requirement{Command: cmd, Warning: strings.TrimSpace(kind) == "warning"})
	}
	return list, nil
}

// Verify checks that r.Components are present and whole (feature verify). It
// returns one line for each that is not; none means all are.
func (m *Module) Verify(ctx context.Context, r Request) ([]string, error) {
	var out bytes.Buffer
	err := m.run(ctx, r, &out, VerbVerify, r.App)
	var problems []string
	for _, line := range strings.Split(out.String(), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			problems = append(problems, line)
		}
	}
	var ce *CallError
	if errors.As(err, &ce) && ce.Code == CodeFailed && len(problems) > 0 {
		return problems, nil
	}
	return problems, err
}

// Sync returns when everything earlier LOADs wrote is durable (feature sync).
func (m *Module) Sync(ctx context.Context, r Request) error {
	return m.run(ctx, r, nil, VerbSync, r.App)
}

// Repair repairs the damaged ones of r.Components (feature repair), from the store
// and from the contents in the directory r.Path, if it is set. r.Dir belongs to the
// caller, outlives the call, and is the same until a call has succeeded; see
// PROTOCOL.md. It returns the applications that have to be rolled out again.
func (m *Module) Repair(ctx context.Context, r Request) ([]string, error) {
	args := []string{r.App, r.Dir}
	if r.Path != "" {
		args = append(args, r.Path)
	}
	return m.lines(ctx, r, VerbRepair, args...)
}

// Storage returns the directories of this machine that components are kept in
// (feature storage); none where they are elsewhere.
func (m *Module) Storage(ctx context.Context, r Request) ([]string, error) {
	return m.lines(ctx, r, VerbStorage, r.App)
}

// Engine returns what runs the containers (feature engine).
func (m *Module) Engine(ctx context.Context, r Request) (Engine, error) {
	var out bytes.Buffer
	if err := m.run(ctx, r, &out, VerbEngine); err != nil {
		return Engine{}, err
	}
	var e Engine
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		return Engine{}, fmt.Errorf("%s %s: the reply is not the JSON of an engine", m.Name, VerbEngine)
	}
	return e, nil
}

// Status returns how the application and each of its services is (feature status).
func (m *Module) Status(ctx context.Context, r Request) (Status, error) {
	var out bytes.Buffer
	if err := m.run(ctx, r, &out, VerbStatus, r.App); err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return Status{}, fmt.Errorf("%s %s: reply: %w", m.Name, VerbStatus, err)
	}
	return s, nil
}

// Restore decrypts the application's secrets again after a restart of the machine
// (feature secrets).
func (m *Module) Restore(ctx context.Context, r Request) error {
	return m.run(ctx, r, nil, VerbRestore, r.App, r.Dir)
}

// lines makes a call that prints a list.
func (m *Module) lines(ctx context.Context, r Request, verb string, args ...string) (list []string, err error) {
	var out bytes.Buffer
	if err := m.run(ctx, r, &out, verb, args...); err != nil {
		return nil, err
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list, nil
}
