// Package view describes the applications to an operator: their state, and what their
// sub-modules say about their services. It takes no lock and changes nothing, so it
// also answers during an update. It must not know how a deployment is carried out.
package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Application is what the store knows about an application.
type Application struct {
	Name  string
	State string // one of the constants below
	// Running is the release that runs, or should run: while an update waits for
	// its commit, the new one. "" for none.
	Running string
	// Committed is the last committed release, which a rollback of an open deployment
	// goes back to. "" for none.
	Committed  string
	Kept       []string
	Deployment *store.Deployment // the open one; nil for none
	Manifests  string            // the manifests' directory that the orchestrator sees
	Problem    string            // what is wrong or must be done; "" for nothing

	app     *store.App     // nil if it cannot be read
	release *store.Release // the release read last
}

// The states of an application. The words are part of the output of mender-app.
const (
	Installed   = "installed"
	Stopped     = "stopped"
	Updating    = "updating" // a call is at work
	Loaded      = "waits for its installation"
	Waiting     = "waits for its commit"
	Committed   = "waits for its cleanup"
	Interrupted = "interrupted" // mender-app resume finishes it
	Purging     = "being removed"
	Legacy      = "not adopted" // another update module installed it
	Damaged     = "damaged"
	Failed      = "not installed" // its first installation failed
	LeftFailed  = "failed"        // it failed to start, and its policy leaves it to a person
)

// Read reads an application. Damage is a state, not an error.
func Read(s *store.Store, name string) (*Application, error) {
	out := &Application{Name: name}
	a, err := s.App(name)
	var left *store.NotAdoptedError
	if errors.As(err, &left) {
		out.State = Legacy
		return out, nil
	}
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		out.State, out.Problem = Damaged, err.Error()
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	out.app, out.Kept, out.Deployment, out.Committed = a, a.Kept, a.Deployment, a.Current
	if out.Running = a.Pointed(); out.Running == "" {
		out.Running = a.Current
	}
	if out.Running != "" {
		out.Manifests = a.ManifestsDir()
	}
	switch {
	case a.Purge != "":
		out.State, out.Problem = Purging, "run mender-app purge "+name+" again"
	case a.Deployment != nil:
		out.State, out.Problem = stateOf(s, a.Deployment), a.Deployment.Error
		switch l := a.Deployment.Leader; {
		case out.Problem != "" && out.State == Interrupted && a.Deployment.Attempts > 0:
			out.Problem += "; mender-app resume tries again, and any release can be installed over it (mender-app install FILE)"
		case out.Problem != "":
		case l != nil:
			out.Problem = "it is committed or rolled back together with " + l.Application
		case out.State == Interrupted:
			out.Problem = "run mender-app resume"
		}
	case a.HasFailed(a.Current):
		out.State, out.Problem = LeftFailed, "the release failed to start and its policy leaves it to a person: install another artifact, or mend it and run mender-app start "+name
		if len(a.Kept) > 0 {
			out.Problem = "the release failed to start and its policy leaves it to a person: mender-app rollback " + name + " goes back, and another artifact may replace it"
		}
	case a.Current != "" && a.Stopped:
		out.State = Stopped
	case a.Current != "":
		out.State = Installed
	default:
		out.State = Failed
	}
	return out, nil
}

// stateOf returns the state of an application with an open deployment.
func stateOf(s *store.Store, d *store.Deployment) string {
	switch d.Phase {
	case journal.Loaded:
		return Loaded
	case journal.Installed:
		return Waiting
	case journal.Committed:
		return Committed
	}
	if s.Busy() {
		return Updating
	}
	return Interrupted
}

// ShouldRun reports whether any part of the application should be running.
func (a *Application) ShouldRun() bool {
	return a.Running != "" && !slices.Contains([]string{Stopped, Legacy, Failed, Damaged}, a.State)
}

// SwitchedOff lists the disabled services of the current release: its policy or an
// operator has switched them off.
func (a *Application) SwitchedOff() []string {
	if a.Running == "" {
		return nil
	}
	r, err := a.Release(a.Running)
	if err != nil {
		return nil
	}
	return settings.ServicesOff(slog.New(slog.DiscardHandler), a.app, a.Name, r)
}

// Release reads one of the application's releases.
func (a *Application) Release(id string) (*store.Release, error) {
	if a.app == nil {
		return nil, fmt.Errorf("%w: %s of %s", store.ErrNoRelease, id, a.Name)
	}
	if a.release != nil && a.release.ID == id {
		return a.release, nil
	}
	r, err := a.app.Release(id)
	if err == nil {
		a.release = r
	}
	return r, err
}

// Submodule is the part of a sub-module that a Viewer calls. submodules.Client implements it.
type Submodule interface {
	Describe(ctx context.Context) (submodules.Info, error)
	Alive(ctx context.Context, r submodules.Request) (bool, error)
	Healthy(ctx context.Context, r submodules.Request) (bool, error)
	Status(ctx context.Context, r submodules.Request) (submodules.Status, error)
	Statuses(ctx context.Context, r submodules.Request, apps []string, each func(app string, s submodules.Status)) error
	Logs(ctx context.Context, r submodules.LogsRequest, each func(submodules.LogLine) error) error
	Render(ctx context.Context, r submodules.Request) ([]byte, error)
}

// Viewer asks the sub-modules of applications.
type Viewer struct {
	// Find returns the sub-module of an orchestrator.
	Find func(orchestrator string) (Submodule, error)
	// AllowEnv are names in the metadata's environment that sub-modules get without
	// declaring them.
	AllowEnv []string
	// OverridesDir has the device's overrides; "" for none.
	OverridesDir string
	Values       settings.Values
	// Staging is where artifacts are staged; nil for nowhere.
	Staging *staging.Area
	// Waits says why an update of an application would have to wait; nil: it would not, or
	// nobody is asked.
	Waits func(app string) error
	// Statement reads and verifies the statement of a release; nil: statements are not read.
	Statement func(*store.Release) *Signed
}

// patience is how long a sub-module may take to answer.
const patience = time.Minute

// Status is the condition of an application.
type Status struct {
	submodules.Status
	// Known: the sub-module reports services. Otherwise Services is empty.
	Known bool
}

// Status asks for the condition of the running release.
func (v *Viewer) Status(ctx context.Context, a *Application) (st Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, req, err := v.open(ctx, a, v.describe)
	if err != nil {
		return st, err
	}
	return m.status(ctx, req)
}

// described is a sub-module that has described its features.
type described struct {
	Submodule
	info submodules.Info
}

// describe finds a sub-module and asks for its features.
func (v *Viewer) describe(ctx context.Context, orchestrator string) (described, error) {
	m, err := v.Find(orchestrator)
	if err != nil {
		return described{}, err
	}
	info, err := m.Describe(ctx)
	return described{m, info}, err
}

// status asks for the condition of one application.
func (m described) status(ctx context.Context, req submodules.Request) (st Status, err error) {
	if m.info.Has(submodules.FeatureStatus) {
		st.Known = true
		st.Status, err = m.Status(ctx, req)
		return st, err
	}
	if st.Alive, err = m.Alive(ctx, req); err != nil || !st.Alive {
		return st, err
	}
	st.Healthy, err = m.Healthy(ctx, req)
	return st, err
}

// Logs calls each for the newest log lines of an application's services, or of one
// service; lines counts per instance. With follow it continues until ctx ends. There
// is no other time limit: a reader may take any time over a page. If the sub-module
// has no logs, the error names it.
func (v *Viewer) Logs(ctx context.Context, a *Application, service string, lines int, follow bool, each func(submodules.LogLine) error) error {
	m, req, err := v.open(ctx, a, v.describe)
	if err != nil {
		return err
	}
	if !m.info.Has(submodules.FeatureLogs) {
		err := fmt.Errorf("the sub-module %s does not have the feature %s: ask its orchestrator for the logs", m.info.Name, submodules.FeatureLogs)
		return submodules.Mark(err, submodules.ErrRequirement)
	}
	return m.Logs(ctx, submodules.LogsRequest{Request: req, Service: service, Lines: &lines, Follow: follow}, each)
}

// Overrides returns the layers that change the manifests of the running release, in
// order.
func (v *Viewer) Overrides(a *Application) ([]submodules.Override, error) {
	r, err := a.Release(a.Running)
	if err != nil {
		return nil, err
	}
	return settings.Layers(slog.New(slog.DiscardHandler), v.OverridesDir, a.app, a.Name, r)
}

// Render returns the manifests of the running release, with the overrides.
func (v *Viewer) Render(ctx context.Context, a *Application) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, req, err := v.open(ctx, a, v.describe)
	if err != nil {
		return nil, err
	}
	if !m.info.Has(submodules.FeatureOverrides) {
		err := fmt.Errorf("the sub-module %s does not have the feature %s", m.info.Name, submodules.FeatureOverrides)
		return nil, submodules.Mark(err, submodules.ErrRequirement)
	}
	return m.Render(ctx, req)
}

// ValuesChanged reports whether the running release was started with values other than
// today's.
func (v *Viewer) ValuesChanged(ctx context.Context, a *Application) bool {
	if a.app == nil || a.app.Values == "" && len(v.Values.For(slog.New(slog.DiscardHandler), a.Name)) == 0 {
		return false // without values there is nothing to ask
	}
	_, req, err := v.open(ctx, a, v.describe)
	return err == nil && settings.ValuesFingerprint(req.Values) != a.app.Values
}

// open finds the sub-module of the running release and makes the request for it.
func (v *Viewer) open(ctx context.Context, a *Application, describe func(context.Context, string) (described, error)) (m described, req submodules.Request, err error) {
	if a.Running == "" {
		return m, req, fmt.Errorf("%w: nothing of %s should run", store.ErrNoRelease, a.Name)
	}
	r, err := a.Release(a.Running)
	if err != nil {
		return m, req, err
	}
	if m, err = describe(ctx, r.Orchestrator); err != nil {
		return m, req, err
	}
	info := m.info
	req = submodules.Request{App: a.Name, Dir: a.Manifests, Platform: r.Platform, Env: map[string]string{}, Components: []submodules.Component{}}
	for _, c := range r.Components {
		req.Components = append(req.Components, submodules.Component{Type: c.Type, URL: c.URL, Digest: c.Digest, DiffIDs: c.DiffIDs})
	}
	if info.Has(submodules.FeatureServices) {
		req.Disabled = a.SwitchedOff()
	}
	if info.Has(submodules.FeatureOverrides) {
		req.Overrides, _ = settings.Layers(slog.New(slog.DiscardHandler), v.OverridesDir, a.app, a.Name, r)
	}
	if info.Has(submodules.FeatureValues) {
		req.Values = v.Values.Used(slog.New(slog.DiscardHandler), a.Name, a.Manifests, req.Overrides)
	}
	for name, value := range r.Env {
		if info.TakesEnv(name) || names.CheckEnv(name) == nil && slices.Contains(v.AllowEnv, name) {
			req.Env[name] = value
		}
	}
	return m, req, nil
}
