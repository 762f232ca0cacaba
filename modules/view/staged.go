package view

import (
	"cmp"

	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/store"
)

// Staged describes a staged artifact for an operator.
type Staged struct {
	staging.Record
	// Installed is the version of the application's committed release.
	Installed string `json:"installed_version,omitempty"`
	// Against says how its version compares with the installed one.
	Against string `json:"against"`
	Newer   bool   `json:"newer"`
	Problem string `json:"problem,omitempty"`
	// State is one of the states below.
	State string `json:"state"`
	// Engine is how many bytes its images take in the engine, if they are loaded.
	Engine int64 `json:"loaded_bytes,omitempty"`

	Artifact staging.Artifact `json:"-"`
}

// The values of Staged.State.
const (
	StateStaged  = "staged"
	StateLoaded  = "loaded" // its images are also in the engine
	StateDamaged = "damaged"
)

// The values of Staged.Against.
const (
	newer        = "newer"
	older        = "older"
	same         = "same"
	notInstalled = "not installed"
	unknown      = "unknown" // the versions cannot be compared
)

// ListStaged lists the staged artifacts of an application, or with "" of all.
func ListStaged(s *store.Store, area *staging.Area, app string) ([]Staged, error) {
	list, err := area.List()
	if err != nil {
		return nil, err
	}
	out := []Staged{}
	for _, a := range list {
		if app != "" && a.Application != app {
			continue
		}
		l := Staged{Record: a.Record, Against: notInstalled, Problem: a.Problem, State: StateStaged, Artifact: a}
		if r := s.LoadRecord(a.Digest); r != nil {
			l.State, l.Engine = StateLoaded, r.Engine
		}
		if a.Problem != "" {
			l.State = StateDamaged
		} else {
			l.compare(s)
		}
		out = append(out, l)
	}
	return out, nil
}

// stagedFor returns the staged artifacts of applications.
func (v *Viewer) stagedFor(s *store.Store, names []string) map[string][]Staged {
	if v.Staging == nil {
		return nil
	}
	app := "" // all
	if len(names) == 1 {
		app = names[0]
	}
	list, _ := ListStaged(s, v.Staging, app) // mender-app stage list reports errors
	by := map[string][]Staged{}
	for _, l := range list {
		by[l.Application] = append(by[l.Application], l)
	}
	return by
}

// compare compares the artifact with the installed release.
func (l *Staged) compare(s *store.Store) {
	v, err := Read(s, l.Application)
	if err != nil || v.Committed == "" {
		return
	}
	r, err := v.Release(v.Committed)
	if err != nil {
		l.Against = unknown
		return
	}
	l.Installed = r.Version
	order, err := version.Compare(l.Version, r.Version)
	switch {
	case r.ArtifactName == l.ArtifactName || err == nil && order == 0:
		l.Against = same
	case err != nil:
		l.Against = unknown
	case order > 0:
		l.Against, l.Newer = newer, true
	default:
		l.Against = older
	}
}

// Text describes the artifact in a few words.
func (l *Staged) Text() string {
	if l.Problem != "" {
		return l.Artifact.Name() + " is damaged"
	}
	return l.ArtifactName + ", " + l.Compared()
}

// Compared says in a few words how the artifact compares with the installed release.
func (l *Staged) Compared() string {
	switch installed := cmp.Or(l.Installed, "the installed release"); l.Against {
	case newer, older:
		return l.Against + " than " + installed
	case same:
		return "installed"
	case unknown:
		return "cannot be compared with " + installed
	}
	return l.Against
}
