// Package facts tells policies about the applications that are installed, and reads the
// policies of releases and artifacts.
package facts

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// PolicyOfArtifact reads the policy of an artifact; nil if it has none.
func PolicyOfArtifact(m *artifact.Metadata) (*policy.Policy, error) {
	if m.Policy == nil {
		return nil, nil
	}
	return policy.ParseJSON(m.Policy, m.ApplicationName, m.ApplicationVersion)
}

// Installed returns the facts for policies about those of the named applications
// that have a current release. An application that cannot be read is left out,
// because the incoming artifact may repair it.
func Installed(s *store.Store, log *slog.Logger, names []string) (list []policy.App) {
	for _, name := range names {
		if s.Legacy(name) {
			list = append(list, policy.App{Name: name, Release: store.AdoptedID})
			continue
		}
		a, err := s.App(name)
		if errors.Is(err, store.ErrNoApp) || err == nil && a.Current == "" {
			continue
		}
		var r *store.Release
		if err == nil {
			r, err = a.Release(a.Current)
		}
		if err != nil {
			log.Error("an application cannot be read: its policy is ignored", "app", name, "error", err)
			continue
		}
		app := policy.App{Name: name, Version: r.Version, Release: r.ID, Policy: PolicyOf(log, name, r)}
		if a.Deployment != nil {
			app.Status = policy.Open
		}
		list = append(list, app)
	}
	return list
}

// PolicyOf reads the policy of a release in the store, nil if it has none.
func PolicyOf(log *slog.Logger, app string, r *store.Release) *policy.Policy {
	if r.Policy == nil {
		return nil
	}
	var compact bytes.Buffer // the store's files are indented
	err := json.Compact(&compact, r.Policy)
	if err == nil {
		var p *policy.Policy
		if p, err = policy.ParseJSON(compact.Bytes(), app, r.Version); err == nil {
			return p
		}
	}
	log.Error("the policy of a release cannot be read and is ignored", "app", app, "release", r.ID, "error", err)
	return nil
}

// InOrder sorts applications in the order in which automatic work visits them.
// Without policies that is by name.
func InOrder(s *store.Store, log *slog.Logger, names []string) []string {
	apps := Installed(s, log, names)
	for _, name := range names {
		if !slices.ContainsFunc(apps, func(a policy.App) bool { return a.Name == name }) {
			apps = append(apps, policy.App{Name: name})
		}
	}
	groups, circle := policy.Order(apps)
	if circle != nil {
		log.Warn("applications depend on each other in a circle", "apps", circle)
	}
	return slices.Concat(groups...)
}
