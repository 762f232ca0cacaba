package deploy

import (
	"errors"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// This file tells which releases and components are still needed. All others
// may be deleted.

// isReferenced reports whether a release of an application is needed: it is current, kept,
// or of the open deployment.
func isReferenced(a *store.App, id string) bool {
	if id == a.Current || slices.Contains(a.Kept, id) {
		return true
	}
	d := a.Deployment
	return d != nil && (id == d.From && d.Phase != journal.Cleaning || id == d.To)
}

// referencesTo returns a function that reports whether a release other than doomed, or a
// staged artifact that is loaded (store.LoadRecord), needs a component under the same
// URL (stays). If not, still lists the
// components of the same digest that are needed under other URLs. A sub-module
// that identifies components by digest keeps one reference for each application,
// so only this application's releases count. For other sub-modules the URL is a
// component's only name, so all applications count.
func referencesTo(s *store.Store, a *store.App, doomed string, byIdentity bool) (func(store.Component) (still []store.Component, stays bool), error) {
	apps := []*store.App{a}
	if !byIdentity {
		names, err := s.Apps()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if name == a.Name || s.Legacy(name) {
				continue
			}
			other, err := s.App(name)
			if err != nil {
				return nil, err
			}
			apps = append(apps, other)
		}
	}
	same, urls := map[digest.Digest][]store.Component{}, map[string]bool{} // the second by URL
	need := func(list []store.Component) {
		for _, c := range list {
			if c.Digest != "" && !slices.ContainsFunc(same[c.Digest], func(o store.Component) bool { return o.URL == c.URL }) {
				same[c.Digest] = append(same[c.Digest], c)
			}
			urls[strings.TrimSpace(c.URL)] = true
		}
	}
	for _, app := range apps {
		ids, err := app.Releases()
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if app.Name == a.Name && (id == doomed || !isReferenced(app, id)) {
				continue
			}
			r, err := app.Release(id)
			if errors.Is(err, store.ErrNoRelease) {
				continue
			}
			if err != nil {
				return nil, err // the release may need anything: delete nothing
			}
			need(r.Components)
		}
	}
	staged, err := s.LoadRecords()
	if err != nil {
		return nil, err
	}
	for _, l := range staged {
		if r := l.Release; r.ID != doomed && (!byIdentity || r.Application == a.Name) {
			need(r.Components)
		}
	}
	return func(c store.Component) ([]store.Component, bool) {
		if !byIdentity || c.Digest == "" {
			return nil, urls[c.URL] || len(same[c.Digest]) > 0
		}
		still := same[c.Digest]
		return still, slices.ContainsFunc(still, func(o store.Component) bool { return o.URL == c.URL })
	}, nil
}

// referencedComponent is a component of releases that are current or kept.
type referencedComponent struct {
	store.Component
	Releases []string // the newest one first
}

// referencedComponents lists the components of the current and the kept releases of an application,
// each once, whatever its names are.
func referencedComponents(a *store.App) (all []referencedComponent, err error) {
	type key struct {
		url    string
		digest digest.Digest
	}
	seen := map[key]int{} // index in all
	for _, id := range append([]string{a.Current}, a.Kept...) {
		if id == "" {
			continue
		}
		r, err := a.Release(id)
		if errors.Is(err, store.ErrNoRelease) && id != a.Current {
			continue // nobody can go back to it
		}
		if err != nil {
			return nil, err
		}
		for _, c := range r.Components {
			k := key{c.URL, c.Digest}
			if c.Digest != "" {
				k.url = ""
			}
			i, ok := seen[k]
			if !ok {
				i = len(all)
				seen[k] = i
				all = append(all, referencedComponent{Component: c})
			}
			if !slices.Contains(all[i].Releases, id) {
				all[i].Releases = append(all[i].Releases, id)
			}
		}
	}
	return all, nil
}
