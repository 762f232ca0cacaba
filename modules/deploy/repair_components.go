package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// Repair verifies the releases that the applications keep and repairs damaged
// components, from other images on the device and, if it is not nil, from an
// artifact. It returns the problems it found and those that are left.
// Applications whose containers had to be removed are rolled out again.
//
// Before it removes anything, all that is needed to load it again is durable. An
// interrupted repair is resumed by the next installation, by Resume and by the
// next Repair.
func (e *Engine) Repair(ctx context.Context, names []string, from RepairSource) (found, left []Problem, err error) {
	release, err := e.lock(ctx, "repair")
	if err != nil {
		return nil, nil, err
	}
	defer release()
	if err := e.finishRepairs(ctx); err != nil {
		return nil, nil, err
	}
	if err := e.settled(); err != nil {
		return nil, nil, err
	}
	source, err := unpackForRepair(ctx, from, e.Store.Temp)
	if err != nil {
		return nil, nil, fmt.Errorf("the artifact: %w", err)
	}
	var errs []error
	for _, name := range names {
		a, err := e.open(name)
		if err != nil {
			return found, left, err
		}
		bad, err := e.survey(ctx, a)
		if err != nil {
			return found, left, err
		}
		if len(bad) == 0 {
			continue
		}
		found = append(found, problemsOf(a, bad)...)
		if err := e.repair(ctx, a, bad, source); err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				return found, left, err
			}
		}
		if bad, err = e.survey(ctx, a); err != nil {
			return found, left, err
		}
		left = append(left, problemsOf(a, bad)...)
	}
	return found, left, errors.Join(errs...)
}

// settled refuses a repair while a deployment is open: the deployment needs
// components that are not in the kept releases.
func (e *Engine) settled() error {
	names, err := e.Store.Apps()
	if err != nil {
		return err
	}
	for _, name := range names {
		if e.Store.Legacy(name) {
			continue
		}
		a, err := e.open(name)
		if err != nil {
			return err
		}
		if d := a.Deployment; d != nil {
			return fmt.Errorf("%w: %s of %s is %s; commit it, roll it back or run mender-app resume first", ErrOpen, d.ArtifactName, name, d.Phase)
		}
	}
	return nil
}

// repair repairs an application's damaged components.
func (e *Engine) repair(ctx context.Context, a *store.App, bad []badComponent, source string) error {
	t, err := e.target(ctx, a, bad[0].Releases[0])
	if err != nil {
		return err
	}
	if !t.info.Has(submodules.FeatureRepair) {
		return fmt.Errorf("%w: sub-module %s cannot repair; delete the damaged image with the engine's own tool and install the release again", submodules.ErrUsage, t.r.Orchestrator)
	}
	q := &repairRequest{Format: store.Format, Application: a.Name, Release: t.r.ID}
	for _, d := range bad {
		q.Components = append(q.Components, d.Component)
	}
	dir := e.Store.Meta(filepath.Join(repairDir, a.Name))
	if err := q.Write(dir); err != nil {
		return err
	}
	e.Log.Info("repairing", "app", a.Name)
	err = e.doRepair(ctx, a, q, dir, source, false)
	if entries, rerr := os.ReadDir(dir); err != nil && rerr == nil && len(entries) == 1 {
		// The sub-module has not changed anything yet.
		return errors.Join(err, durable.RemoveAll(dir))
	}
	return err
}

// doRepair calls the sub-module, starts the applications that the sub-module had
// to stop, and closes the repair. source is "" for a repair that is resumed.
func (e *Engine) doRepair(ctx context.Context, a *store.App, q *repairRequest, dir, source string, finish bool) error {
	t, err := e.target(ctx, a, q.Release)
	if err != nil {
		return err
	}
	req := submodules.RepairRequest{Request: t.only(q.Components...).request(), Work: dir, Source: source, Finish: finish}
	apps, err := t.client().Repair(ctx, req)
	if err != nil {
		e.putBack(ctx, q, dir)
		return err
	}
	for _, name := range apps {
		if err := e.bringUp(ctx, name); err != nil {
			return fmt.Errorf("the images are whole, but %s does not start; mender-app resume tries again: %w", name, err)
		}
	}
	return durable.RemoveAll(dir)
}

// putBack starts the applications again that a repair which failed may have stopped:
// those that use a layer of what it repairs. What it fails to start, a resumed repair
// starts.
func (e *Engine) putBack(ctx context.Context, q *repairRequest, dir string) {
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 1 || ctx.Err() != nil {
		return // it changed nothing, or there is no time left
	}
	apps, err := e.Store.Apps()
	if err != nil {
		e.Log.Error("applications that a repair stopped are not started again", "error", err)
		return
	}
	for _, name := range apps {
		a, err := e.open(name)
		if err != nil || !uses(a, q.Components) {
			continue
		}
		if err := e.bringUp(ctx, name); err != nil {
			e.Log.Error("the repair failed, and the application does not start again", "app", name, "error", err)
			continue
		}
		e.Log.Info("the repair failed; the application runs as before", "app", name)
	}
}

// uses reports whether an application's current release has a component, or a layer of
// one.
func uses(a *store.App, components []store.Component) bool {
	r, err := a.Release(a.Current)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(r.Components, func(c store.Component) bool {
		return slices.ContainsFunc(components, func(d store.Component) bool {
			return c.Digest == d.Digest || slices.ContainsFunc(c.DiffIDs, func(l digest.Digest) bool { return slices.Contains(d.DiffIDs, l) })
		})
	})
}

// bringUp rolls out an application's current release again. An application that an
// operator has stopped stays stopped.
func (e *Engine) bringUp(ctx context.Context, name string) error {
	a, err := e.open(name)
	if errors.Is(err, store.ErrNoApp) {
		e.Log.Error("the containers of an application that is not in the store were removed for a repair: start it again", "app", name)
		return nil
	}
	if err != nil {
		return err
	}
	id := a.Current
	if d := a.Deployment; d != nil && (d.Phase == journal.Installed || d.Phase == journal.Committed) {
		id = d.To
	}
	if id == "" {
		return nil
	}
	t, err := e.target(ctx, a, id)
	if err != nil {
		return err
	}
	e.Log.Info("starting the application again", "app", name, "release", t.r.ID)
	err = t.client().Rollout(ctx, t.request())
	if err == nil {
		err = t.stayStopped(ctx)
	}
	if err != nil || !t.info.Has(submodules.FeatureSync) {
		return err
	}
	return t.client().Sync(ctx, t.request())
}

// finishRepairs resumes the repairs that were interrupted.
func (e *Engine) finishRepairs(ctx context.Context) error {
	entries, err := os.ReadDir(e.Store.Meta(repairDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		dir := e.Store.Meta(filepath.Join(repairDir, entry.Name()))
		if names.Check(entry.Name()) != nil {
			errs = append(errs, os.RemoveAll(dir)) // left by an interrupted removal
			continue
		}
		if err := e.finishRepair(ctx, entry.Name(), dir); err != nil {
			errs = append(errs, fmt.Errorf("repair of %s: %w", entry.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// endRepair resumes the repair of an application that is being removed, and then drops
// it: other applications may have been stopped for it.
func (e *Engine) endRepair(ctx context.Context, name string) error {
	dir := e.Store.Meta(filepath.Join(repairDir, name))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := e.finishRepair(ctx, name, dir); err != nil {
		if ctx.Err() != nil {
			return err
		}
		e.Log.Error("a repair of images is dropped with its application", "app", name, "error", err)
	}
	return durable.RemoveAll(dir)
}

func (e *Engine) finishRepair(ctx context.Context, name, dir string) error {
	q, err := readRepair(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return durable.RemoveAll(dir) // the repair was not begun
	}
	if err != nil {
		return err
	}
	a, err := e.open(name)
	if errors.Is(err, store.ErrNoApp) {
		e.Log.Warn("a repair of an application that was removed is dropped", "app", name)
		return durable.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	if !slices.Contains(append([]string{a.Current}, a.Kept...), q.Release) {
		q.Release = a.Current
	}
	e.Log.Info("resuming a repair that was interrupted", "app", name)
	return e.doRepair(ctx, a, q, dir, "", true)
}
