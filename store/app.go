package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/containermodules"
	"github.com/mender-app/mender-app/store/durable"
)

// App is one application of a store.
type App struct {
	Name string
	State

	store *Store
}

// State is the state of an application, app.json. It is one file, so the phase and
// the current release change in one step.
type State struct {
	Format      int    `json:"format"`
	Application string `json:"application"`
	// Sequence is the number of the newest release that is or was installed.
	Sequence int64 `json:"sequence"`
	// Current is the release that is installed and committed; "" for none.
	Current string `json:"current,omitempty"`
	// Kept are older releases that a rollback can use, the newest first.
	Kept []string `json:"kept,omitempty"`
	// Deployment is the open one; nil for none.
	Deployment *Deployment `json:"deployment,omitempty"`
	// Stopped: an operator has stopped the current release, or its policy says not to
	// start it. Describes the previous release until cleaning starts.
	Stopped bool `json:"stopped,omitempty"`
	// Failed are releases that failed to start and were left for a person: the current
	// one, and during a deployment the previous one.
	Failed []string `json:"failed,omitempty"`
	// Services are the services that an operator switched on or off, by name.
	Services map[string]ServiceChoice `json:"services,omitempty"`
	// Overrides are what an operator changes in the manifests; nil: nothing.
	Overrides *Overrides `json:"overrides,omitempty"`
	// Applied names the overrides the current release was last started with; "" for none.
	Applied string `json:"applied,omitempty"`
	// Values names the values it was last started with; "" for none.
	Values string `json:"values,omitempty"`
	// Off maps each disabled release to the reason why it must not run.
	Off map[string]string `json:"off,omitempty"`
	// Purge: the application is being removed, without its data ("keep-data")
	// or with it ("data"); "" otherwise.
	Purge string `json:"purge,omitempty"`
	// Copying: the application is stopped while its data is copied for a backup, and
	// must be started again.
	Copying bool `json:"copying,omitempty"`
	// Deciding: an operator's decision about the current release is recorded here, and the
	// release must still be started with it.
	Deciding bool `json:"deciding,omitempty"`
	// AdoptedFrom is the store of mender-container-modules that still has the
	// application's old files; "" for none. They are removed after the first commit.
	AdoptedFrom string `json:"adopted_from,omitempty"`

	extra extra
}

// ServiceChoice is an operator's decision about a service.
type ServiceChoice struct {
	Enabled bool   `json:"enabled"`
	Release string `json:"release"` // the current one then
}

// Overrides are an operator's changes to the manifests of an application.
type Overrides struct {
	Text    string `json:"text"`    // in the form of the orchestrator
	Release string `json:"release"` // the current one when they were set
}

// Deployment is the journal of an open deployment. A phase is written before its work
// begins.
type Deployment struct {
	ID           string `json:"id"` // with Started unique in the application
	ArtifactName string `json:"artifact_name,omitempty"`
	From         string `json:"from,omitempty"` // the previous release; "" for a first installation
	To           string `json:"to"`             // the release it brings
	// Overwrites: loading To overwrites components that releases on the device
	// need. Each such release has copies of them (see App.Saved).
	Overwrites bool  `json:"overwrites,omitempty"`
	Phase      Phase `json:"phase"`
	// BootID is the boot of the machine in which the phase was entered. Data not synced
	// in that boot must be verified in a later one.
	BootID  string    `json:"boot_id,omitempty"`
	Driver  string    `json:"driver,omitempty"` // who drives it: "mender", "mender-app"
	Asked   *Asked    `json:"asked,omitempty"`
	Started time.Time `json:"started"`
	Updated time.Time `json:"updated"`
	// Refused: the artifact was refused, for the reason in Error. The running release
	// was not touched.
	Refused bool `json:"refused,omitempty"`
	// Error is the last error, in one line.
	Error string `json:"error,omitempty"`
	// Attempts counts the rollbacks that failed.
	Attempts int `json:"attempts,omitempty"`
	// Number is the number of its record in the history.
	Number   int64     `json:"number,omitempty"`
	Measured *Measured `json:"measured,omitempty"` // so far
	// Changed is set before a release is removed.
	Changed *Changed `json:"changed,omitempty"`
	// Steps are the phases entered so far.
	Steps []Step `json:"steps,omitempty"`

	Ties
	extra extra
}

// Ties connect a deployment to other deployments.
type Ties struct {
	// Reused: To is a kept release that an operator went back to. It stays if the
	// deployment fails.
	Reused bool `json:"reused,omitempty"`
	// Members are staged artifacts of other applications that are installed first, in this
	// order, and undone with this deployment.
	Members []Member `json:"members,omitempty"`
	// Leader is the deployment that this member follows; nil for none.
	Leader *Leader `json:"leader,omitempty"`
}

// Member is a staged artifact that a deployment installs first.
type Member struct {
	Application  string `json:"application"`
	ArtifactName string `json:"artifact_name"`
}

// Leader identifies the deployment that a member follows.
type Leader struct {
	Application string `json:"application"`
	Number      int64  `json:"number"`
	Release     string `json:"release"` // the one that it brings
}

// Phase is the progress of a deployment. Package journal of the update module says what
// the phases are.
type Phase string

// Step is a phase that a deployment entered.
type Step struct {
	Phase Phase     `json:"phase"`
	At    time.Time `json:"at"`
	// Data says what was done with the application's data, one of the constants below; ""
	// for everything else in the phase.
	Data string `json:"data,omitempty"`
	// Error is the last error in the phase.
	Error string `json:"error,omitempty"`
	// End and Outcome are only in the history.
	End     time.Time `json:"end,omitzero"`
	Outcome string    `json:"outcome,omitempty"`
}

// What is done with the data of an application.
const (
	DataCopy    = "copy"    // a copy is made, for a rollback
	DataMigrate = "migrate" // it becomes that of the new release
	DataRestore = "restore" // it comes back from a copy
)

// The outcomes of a step.
const (
	OutcomeDone        = "done"
	OutcomeFailed      = "failed"      // with an error
	OutcomeUndone      = "undone"      // it was done, and the client undid it
	OutcomeInterrupted = "interrupted" // by a kill, a power cut or Ctrl-C
)

type plainState State
type plainDeployment Deployment

// UnmarshalJSON also keeps unknown fields, for MarshalJSON.
func (s *State) UnmarshalJSON(data []byte) (err error) {
	s.extra, err = decode(data, (*plainState)(s))
	return err
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (s State) MarshalJSON() ([]byte, error) { return encode(plainState(s), s.extra) }

// UnmarshalJSON also keeps unknown fields, for MarshalJSON.
func (d *Deployment) UnmarshalJSON(data []byte) (err error) {
	d.extra, err = decode(data, (*plainDeployment)(d))
	return err
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (d Deployment) MarshalJSON() ([]byte, error) { return encode(plainDeployment(d), d.extra) }

// Snapshot returns a deep copy of the state.
func (a *App) Snapshot() State {
	s := a.State
	s.Kept, s.Failed = slices.Clone(a.Kept), slices.Clone(a.Failed)
	if a.Deployment != nil {
		d := *a.Deployment
		d.Steps = slices.Clone(d.Steps)
		if d.Measured != nil {
			m := *d.Measured
			m.Downtimes = slices.Clone(m.Downtimes)
			d.Measured = &m
		}
		s.Deployment = &d
	}
	return s
}

// HasFailed reports whether a release failed to start and was left for a person.
func (s *State) HasFailed(id string) bool { return id != "" && slices.Contains(s.Failed, id) }

// App reads an application. The error is an ErrName, an ErrNoApp (a [*NoAppError] or a [*NotAdoptedError]), an ErrNewer,
// or a *CorruptError, after which [Store.Rescue] may help. It needs no lock.
func (s *Store) App(name string) (*App, error) {
	if err := names.Check(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrName, err)
	}
	path := filepath.Join(s.appDir(name), stateFile)
	a, err := s.read(name, path)
	if errors.Is(err, fs.ErrNotExist) && s.hasState(name) {
		err = &CorruptError{path, errors.New("it is gone")}
	}
	if errors.As(err, new(*CorruptError)) {
		return nil, fmt.Errorf("%w: run mender-app resume, which makes it again", err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if s.isLegacy(name) {
		return nil, &NotAdoptedError{name}
	}
	return nil, &NoAppError{name}
}

// read reads an application's state from a file.
func (s *Store) read(name, path string) (*App, error) {
	a := &App{Name: name, store: s}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if err := a.UnmarshalJSON(data); err != nil {
		return nil, &CorruptError{path, err}
	}
	if a.Format > Format {
		return nil, fmt.Errorf("%s: %w", path, ErrNewer)
	}
	if err := a.check(); err != nil {
		return nil, &CorruptError{path, err}
	}
	return a, nil
}

// check refuses a state whose names could lead out of the application's
// directory.
func (a *App) check() error {
	ids := slices.Concat([]string{a.Current}, a.Kept)
	if d := a.Deployment; d != nil {
		if d.To == "" {
			return errors.New("a deployment of no release")
		}
		ids = append(ids, d.From, d.To)
		if d.Leader != nil {
			ids = append(ids, d.Leader.Application, d.Leader.Release)
		}
		for _, m := range d.Members {
			ids = append(ids, m.Application)
		}
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		if err := names.Check(id); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	return nil
}

// Create returns the application, or a new one if the store has none. Nothing is
// written before the first Save.
func (s *Store) Create(name string) (*App, error) {
	a, err := s.App(name)
	if errors.Is(err, ErrNoApp) {
		return &App{Name: name, State: State{Format: Format, Application: name}, store: s}, nil
	}
	return a, err
}

// Rescue rebuilds the state of an application whose state file is damaged or gone. A
// damaged file is renamed. The state is that of its copy. Without one, the link to the
// manifests names the current release, and the other complete releases are kept. Rescue
// returns a line for each finding.
func (s *Store) Rescue(name string) (*App, []string, error) {
	var lines []string
	path := filepath.Join(s.appDir(name), stateFile)
	if _, err := os.Lstat(path); err == nil {
		aside, err := keepAside(path)
		if err != nil {
			return nil, nil, err
		}
		lines = append(lines, fmt.Sprintf("%s was damaged; it is kept as %s", path, filepath.Base(aside)))
	} else {
		lines = append(lines, path+" is gone")
	}
	if a, err := s.read(name, path+copySuffix); err == nil {
		return a, append(lines, path+" is made again from its copy"), a.Save()
	}
	a := &App{Name: name, State: State{Format: Format, Application: name}, store: s}
	all, err := a.Releases()
	if err != nil {
		return nil, lines, err
	}
	current := ""
	if target, err := os.Readlink(a.ManifestsDir()); err == nil {
		current = filepath.Base(filepath.Dir(target))
	}
	for _, id := range all { // newest first
		r, err := a.Release(id)
		if err != nil || !r.Complete {
			continue
		}
		a.Sequence = max(a.Sequence, Number(id))
		if _, ok := s.fromModules(name); ok && id == AdoptedID {
			a.AdoptedFrom = s.modules.Dir()
		}
		if id == current {
			a.Current = id
		} else {
			a.Kept = append(a.Kept, id)
		}
	}
	if a.Current == "" && len(a.Kept) == 0 {
		// Nothing to rebuild from: the incomplete releases stay for a person.
		lines = append(lines, fmt.Sprintf("%s has no whole release", name))
	}
	return a, lines, a.Save()
}

// Save writes the application's state.
func (a *App) Save() error {
	a.Format = Format
	data, err := marshal(a.State)
	if err != nil {
		return fmt.Errorf("application %s: %w", a.Name, err)
	}
	dir := a.store.appDir(a.Name)
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("application %s: %w", a.Name, err)
	}
	path := filepath.Join(dir, stateFile)
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("application %s: %w", a.Name, err)
	}
	if d := a.Deployment; d != nil && !copied[d.Phase] {
		return nil
	}
	// The work of a phase begins when both have it. An old copy is worse than none.
	if err := durable.WriteFile(path+copySuffix, data, 0o600); err != nil {
		if rerr := durable.Remove(path + copySuffix); rerr != nil {
			return fmt.Errorf("application %s: %w", a.Name, errors.Join(err, rerr))
		}
	}
	return nil
}

// copied are the phases of a deployment in which the state's copy is written. From the copy of
// an earlier phase every other one ends as it should: what was only loaded is loaded again,
// and what was only started is undone.
var copied = map[Phase]bool{"installing": true, "committed": true, "failed": true}

// marshal writes JSON for people to read, with a newline at its end.
func marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Dir is the application's directory.
func (a *App) Dir() string { return a.store.appDir(a.Name) }

// ManifestsDir is the path under which the orchestrator sees the manifests, the
// same for each release. It is a symbolic link.
func (a *App) ManifestsDir() string { return filepath.Join(a.Dir(), manifestsName) }

// Point makes ManifestsDir a link to the manifests of a release; "" removes it.
func (a *App) Point(id string) error {
	link := a.ManifestsDir()
	if id == "" {
		if st, err := os.Lstat(link); err == nil && st.Mode()&fs.ModeSymlink == 0 {
			return &fs.PathError{Op: "remove", Path: link, Err: fs.ErrExist}
		}
		return durable.Remove(link)
	}
	if st, err := os.Lstat(link); err == nil && st.IsDir() {
		// An adoption was interrupted.
		if !a.hasAdopted() {
			return &fs.PathError{Op: "symlink", Path: link, Err: fs.ErrExist}
		}
		if err := a.pointAdopted(); err != nil {
			return err
		}
	}
	return durable.Symlink(filepath.Join(releasesDir, id, manifestsName), link)
}

// Pointed returns the release that ManifestsDir links to; "" for none. The release may be gone.
func (a *App) Pointed() string {
	target, err := os.Readlink(a.ManifestsDir())
	if err != nil {
		return ""
	}
	return filepath.Base(filepath.Dir(target))
}

// IsCurrent reports whether the current release came with an artifact of this name.
func (a *App) IsCurrent(artifact string) bool {
	if a.Current == "" || artifact == "" {
		return false
	}
	r, err := a.Release(a.Current)
	return err == nil && r.ArtifactName == artifact
}

// HasSecrets reports whether the sub-module keeps encrypted secrets for the
// application.
func (a *App) HasSecrets() bool {
	entries, err := os.ReadDir(filepath.Join(a.Dir(), secretsName))
	return err == nil && len(entries) > 0
}

// Forget removes the application and all its releases. The history stays. The
// application's data in directories and files that a service wrote into its mounts stay
// too, and so do the sub-module's notes of volumes: only its PURGE removes
// them.
func (a *App) Forget() error {
	if a.AdoptedFrom != "" {
		if err := containermodules.At(a.AdoptedFrom).Drop(a.Name); err != nil {
			return err
		}
	}
	keep := false
	for _, name := range leftNames {
		left, err := isLeft(filepath.Join(a.Dir(), name))
		if err != nil {
			return err
		}
		keep = keep || left
	}
	if !keep {
		return durable.RemoveAll(a.Dir())
	}
	entries, err := os.ReadDir(a.Dir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(leftNames, e.Name()) || e.Name() == stateFile {
			continue
		}
		if err := durable.RemoveAll(filepath.Join(a.Dir(), e.Name())); err != nil {
			return err
		}
	}
	return durable.Remove(filepath.Join(a.Dir(), stateFile)) // last: without it there is no application
}

// leftNames are in an application's directory what a sub-module leaves of its data, or needs
// to find it, when the application is forgotten.
var leftNames = []string{mountsName, DataName, unnamedName, keptName}

// isLeft reports whether there is a file at a path, or a directory that is not empty.
func isLeft(path string) (bool, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !fi.IsDir() {
		return err == nil, err
	}
	entries, err := os.ReadDir(path)
	return len(entries) > 0, err
}

// LeftManifests returns where the manifests of an application were that the store has
// forgotten. A sub-module finds there what of its data is left.
func (s *Store) LeftManifests(name string) string {
	return filepath.Join(s.appDir(name), manifestsName)
}

// DropEmpty removes the directory of an application that was forgotten, once nothing is in it.
func (s *Store) DropEmpty(name string) error {
	err := os.Remove(s.appDir(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

var notInID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
})

// NextID makes the name of the next release from its number and name. The caller
// saves the state, which then has the number.
func (a *App) NextID(name string) string {
	a.Sequence++
	name = strings.Trim(notInID().ReplaceAllString(name, "-"), "-.")
	if len(name) > 80 {
		name = name[:80]
	}
	id := strconv.FormatInt(a.Sequence, 10)
	if name != "" {
		id += "-" + name
	}
	return id
}

// Number is the number a release's name begins with; 0 if it has none.
func Number(id string) int64 {
	digits, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
