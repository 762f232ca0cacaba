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

// badComponent is a component with problems.
type badComponent struct {
	referencedComponent
	problems []string
}

// Verify reads the components of an application's current and kept releases,
// each once, and returns what is missing or damaged. It changes nothing. It takes
// no lock, because it may take long and an update must not wait for it; but where
// the sub-module cannot verify, it does, for temporary files of components.
func (e *Engine) Verify(ctx context.Context, name string) ([]Problem, error) {
	a, err := e.Store.App(name)
	if err != nil {
		return nil, err
	}
	if saves, err := e.savesToVerify(ctx, a); err != nil {
		return nil, err
	} else if saves {
		release, err := e.lock(ctx, "verify")
		if err != nil {
			return nil, err
		}
		defer release()
		if a, err = e.Store.App(name); err != nil {
			return nil, err
		}
	}
	bad, err := e.survey(ctx, a)
	return problemsOf(a, bad), err
}

func problemsOf(a *store.App, bad []badComponent) (list []Problem) {
	for _, d := range bad {
		for _, text := range d.problems {
			list = append(list, Problem{a.Name, d.Releases[0], d.URL, d.Digest, text})
		}
	}
	return list
}

// savesToVerify reports whether the sub-module of the current release cannot verify.
func (e *Engine) savesToVerify(ctx context.Context, a *store.App) (bool, error) {
	if a.Current == "" {
		return false, nil
	}
	t, err := e.target(ctx, a, a.Current)
	if err != nil {
		return false, err
	}
	return !t.info.Has(submodules.FeatureVerify), nil
}

// survey verifies the current and the kept releases of an application. It does
// not need the lock, but where the sub-module cannot verify.
func (e *Engine) survey(ctx context.Context, a *store.App) (bad []badComponent, err error) {
	all, err := referencedComponents(a)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		d := badComponent{referencedComponent: c}
		t, err := e.target(ctx, a, d.Releases[0])
		if err != nil {
			return nil, err
		}
		if !t.info.Has(submodules.FeatureVerify) {
			if d.problems, err = e.verifyCopyOr(ctx, t, d); err != nil {
				return nil, err
			}
			if len(d.problems) > 0 {
				bad = append(bad, d)
			}
			continue
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

// verifyCopyOr verifies a component of a sub-module that cannot verify. Those of
// the current release are in place, and SAVE writes them; an older release has a
// copy of what is not in place.
func (e *Engine) verifyCopyOr(ctx context.Context, t *target, d badComponent) (problems []string, err error) {
	if d.Digest == "" {
		return nil, cannotVerify(t)
	}
	for _, id := range d.Releases {
		path, ok := t.a.Saved(id, d.URL)
		if !ok || slices.Contains(d.Releases, t.a.Current) {
			continue
		}
		sum, err := sumOf(path)
		if err != nil {
			return nil, err
		}
		if sum != d.Digest && isFile(d.Component) {
			return []string{fmt.Sprintf("%s: its copy is %s, and should be %s", d.URL, sum, d.Digest)}, nil
		}
		return nil, nil
	}
	if t.info.Has(submodules.FeatureStage) && !slices.Contains(d.Releases, t.a.Current) {
		return nil, cannotVerify(t) // SAVE writes what the current release has under the URL
	}
	return t.verifySaved(ctx, d.Component)
}

// verify reads the target's components and returns one line for each that is
// missing or damaged. Under the lock it waits for an engine that is starting,
// as after a boot.
func (t *target) verify(ctx context.Context) ([]string, error) {
	return t.client().Verify(ctx, t.request())
}
