package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Document is the output of list and show for one application. Its release fields
// describe the release that runs or should run.
type Document struct {
	Name         string            `json:"application"`
	State        string            `json:"state"`
	Release      string            `json:"release,omitempty"`
	ArtifactName string            `json:"artifact_name,omitempty"`
	Version      string            `json:"application_version,omitempty"`
	Orchestrator string            `json:"orchestrator,omitempty"`
	Platform     string            `json:"platform,omitempty"`
	Components   []store.Component `json:"components,omitempty"`
	Statement    *Signed           `json:"statement,omitempty"`
	// Committed is the last committed release, if another one runs.
	Committed  string            `json:"committed,omitempty"`
	Kept       []string          `json:"kept,omitempty"`
	Deployment *store.Deployment `json:"deployment,omitempty"`
	Manifests  string            `json:"manifests,omitempty"`
	Problem    string            `json:"problem,omitempty"`

	application *Application
}

// Signed describes a release's statement.
type Signed struct {
	Verified    bool                 `json:"verified"`              // by a key of today's configuration that may sign for the application
	Key         string               `json:"key,omitempty"`         // the file of that key
	Fingerprint string               `json:"fingerprint,omitempty"` // of that key
	Problem     string               `json:"problem,omitempty"`     // why it is not verified
	Text        *statement.Statement `json:"text,omitempty"`        // nil if it cannot be read

	// Damaged: it cannot be read, or describes a release other than the stored one.
	Damaged bool `json:"-"`
}

// Document reads an application from the store.
func (v *Viewer) Document(s *store.Store, name string) (*Document, error) {
	a, err := Read(s, name)
	if err != nil {
		return nil, err
	}
	out := &Document{
		Name: name, State: a.State, Release: a.Running, Kept: a.Kept, Deployment: a.Deployment, Manifests: a.Manifests,
		Problem: a.Problem, application: a,
	}
	if a.Committed != a.Running {
		out.Committed = a.Committed
	}
	if a.Running == "" {
		out.Orchestrator = s.LegacyOrchestrator(name)
		return out, nil
	}
	if why := a.app.Off[a.Running]; why != "" {
		out.Problem = cmp.Or(out.Problem, "it is disabled: "+why)
	}
	r, err := a.Release(a.Running)
	if err != nil {
		out.Problem = err.Error()
		return out, nil
	}
	out.ArtifactName, out.Version, out.Orchestrator = r.ArtifactName, r.Version, r.Orchestrator
	out.Platform, out.Components = r.Platform, r.Components
	if v.Statement != nil {
		out.Statement = v.Statement(r)
	}
	return out, nil
}

// Overview is the output of status for one application.
type Overview struct {
	Document
	Health   string               `json:"health,omitempty"`   // a word of submodules, or Unknown; "" if nothing should run
	Services []submodules.Service `json:"services"`           // null if the sub-module does not say
	Last     *store.Record        `json:"last,omitempty"`     // the last deployment that ended
	Disabled []string             `json:"disabled,omitempty"` // services that are switched off
	Staged   []Staged             `json:"staged,omitempty"`
	// UpdatesWait says why an update would have to wait, and until when: for a hold, for the
	// application itself, or for a maintenance window.
	UpdatesWait string `json:"updates_wait,omitempty"`

	// Wrong says why the application is not healthy; nil if it is, or if nothing
	// should run.
	Wrong error `json:"-"`
}

// Unknown is the health of an application whose sub-module does not answer.
const Unknown = "unknown"

// Overview reads an application from the store and asks its sub-module for its status.
func (v *Viewer) Overview(ctx context.Context, s *store.Store, name string) (o *Overview, err error) {
	v.Overviews(ctx, s, []string{name}, func(_ int, found *Overview, wrong error) { o, err = found, wrong })
	return o, err
}

// stored describes an application from the store alone; staged are its staged artifacts.
func (v *Viewer) stored(s *store.Store, name string, staged []Staged) (*Overview, error) {
	doc, err := v.Document(s, name)
	if err != nil {
		return nil, err
	}
	o := &Overview{Document: *doc, Disabled: doc.application.SwitchedOff(), Staged: staged}
	if last, found, err := s.Outcome(name); err == nil && found {
		o.Last = &last // history has the steps
	}
	o.Components = nil // show has them
	if v.Waits != nil {
		if err := v.Waits(name); err != nil {
			o.UpdatesWait = err.Error()
		}
	}
	return o, nil
}

// add adds the sub-module's answer.
func (o *Overview) add(said Status, err error) {
	o.Health = health(said, err)
	switch {
	case err != nil:
		o.Problem, o.Wrong = cmp.Or(o.Problem, err.Error()), err
	case o.Health != submodules.Healthy:
		o.Wrong = submodules.Mark(fmt.Errorf("%s is %s", o.Name, o.Health), submodules.ErrUnhealthy)
	}
	if err == nil && said.Known {
		o.Services = append([]submodules.Service{}, said.Services...)
	}
}

// health is the health of an application in one word.
func health(st Status, err error) string {
	switch {
	case err != nil:
		return Unknown
	case st.Healthy:
		return submodules.Healthy
	case st.Alive:
		return submodules.Unhealthy
	}
	return submodules.Down
}

// StoredRelease is the output of releases for one release.
type StoredRelease struct {
	*store.Release
	Role string // one of the constants below
}

// The roles of releases.
const (
	RoleCurrent  = "current"
	RoleKept     = "kept"     // a rollback can use it
	RoleIncoming = "incoming" // the open deployment brings it
	RoleDamaged  = "damaged"
	RoleUnused   = "unused"
)

// MarshalJSON adds the role to the release's JSON.
func (r StoredRelease) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(r.Release)
	if err != nil {
		return nil, err
	}
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if doc["role"], err = json.Marshal(r.Role); err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

// Releases returns the releases of an application that are on the device, the newest
// first.
func Releases(s *store.Store, name string) ([]StoredRelease, error) {
	a, err := s.App(name)
	if err != nil {
		return nil, err
	}
	ids, err := a.Releases()
	if err != nil {
		return nil, err
	}
	list := []StoredRelease{}
	for _, id := range ids {
		role := RoleUnused
		switch {
		case id == a.Current:
			role = RoleCurrent
		case slices.Contains(a.Kept, id):
			role = RoleKept
		case a.Deployment != nil && a.Deployment.To == id:
			role = RoleIncoming
		}
		r, err := a.Release(id)
		if err != nil {
			r = &store.Release{ID: id}
			// A download that was killed may have made only the directory.
			if role != RoleIncoming || !errors.Is(err, store.ErrNoRelease) {
				role = RoleDamaged
			}
		}
		list = append(list, StoredRelease{r, role})
	}
	return list, nil
}
