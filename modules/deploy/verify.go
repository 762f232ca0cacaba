package deploy

import (
	"context"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Problem is one damaged or missing part of a component.
type Problem struct {
	App       string        `json:"application"`
	Release   string        `json:"release"` // the newest one with the component
	Component string        `json:"component"`
	Digest    digest.Digest `json:"digest,omitempty"`
	Text      string        `json:"problem"`
}

// damaged is a component with problems.
type damaged struct {
	store.Component
	releases []string // releases with the component
	problems []string
}

// Verify reads the components of an application's current and kept releases,
// each once, and returns what is missing or damaged. It changes nothing. It takes
// no lock, because it may take long and an update must not wait for it.
func (e *Engine) Verify(ctx context.Context, name string) ([]Problem, error) {
	a, err := e.Store.App(name)
	if err != nil {
		return nil, err
	}
	bad, err := e.survey(ctx, a)
	return problemsOf(a, bad), err
}

func problemsOf(a *store.App, bad []damaged) (list []Problem) {
	for _, d := range bad {
		for _, text := range d.problems {
			list = append(list, Problem{a.Name, d.releases[0], d.URL, d.Digest, text})
		}
	}
	return list
}

// survey verifies the current and the kept releases of an application. It does
// not need the lock.
func (e *Engine) survey(ctx context.Context, a *store.App) (bad []damaged, err error) {
	type key struct {
		url    string
		digest digest.Digest
	}
	seen := map[key]int{} // index in all
	var all []damaged
	releases := map[string]*store.Release{}
	for _, id := range append([]string{a.Current}, a.Kept...) {
		if id == "" {
			continue
		}
		r, err := a.Release(id)
		if err != nil {
			return nil, err
		}
		releases[id] = r
		for _, c := range r.Components {
			k := key{c.URL, c.Digest}
			if c.Digest != "" {
				k.url = "" // read it once, whatever its names
			}
			i, ok := seen[k]
			if !ok {
				i = len(all)
				seen[k] = i
				all = append(all, damaged{Component: c})
			}
			if !slices.Contains(all[i].releases, id) {
				all[i].releases = append(all[i].releases, id)
			}
		}
	}
	for _, d := range all {
		t, err := e.targetOf(ctx, a, releases[d.releases[0]])
		if err != nil {
			return nil, err
		}
		if !t.info.Has(submodules.FeatureVerify) {
			return nil, fmt.Errorf("%w: sub-module %s cannot verify", submodules.ErrUsage, t.r.Orchestrator)
		}
		t = t.only(d.Component)
		t.unlocked = true
		if d.problems, err = t.verify(ctx); err != nil {
			return nil, err
		}
		if len(d.problems) > 0 {
			bad = append(bad, d)
		}
	}
	return bad, nil
}

// verify reads the target's components and returns one line for each that is
// missing or damaged. Under the lock it waits for an engine that is starting,
// as after a boot.
func (t *target) verify(ctx context.Context) (problems []string, err error) {
	err = t.call(ctx, submodules.VerbVerify, t.request(), into(&problems, t.o.Verify))
	return problems, err
}
