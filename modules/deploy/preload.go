package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Preload is a staged artifact that is to be loaded.
type Preload struct {
	*StagedArtifact
	Name   string        // of the Mender Artifact
	Digest digest.Digest // of its file
	// Room makes room for bytes in the engine, by unstaging others. Margin is how many
	// bytes must stay free there.
	Room   func(bytes int64) error
	Margin int64
}

// Preload loads the components of a staged artifact beside what runs, so that its
// installation has nothing to load. What they are is durable before the first of them
// is loaded (store.LoadRecord), and they are when Preload returns nil. Otherwise they are
// deleted again; what a kill leaves, the next Preload, Unload or Resume deletes.
func (e *Engine) Preload(ctx context.Context, p Preload) error {
	release, err := e.lock(ctx, "loading of "+p.Name)
	if err != nil {
		return err
	}
	defer release()
	if err := e.checkHold(); err != nil {
		return err
	}
	pre := e.preflightOf(store.Member{ArtifactName: p.Name}, p.StagedArtifact, &store.Leader{}, nil)
	if err := pre.run(ctx, "hold", "windows", "application", "policy", "space"); err != nil {
		return err
	}
	t, meta := pre.t, pre.resolved.Meta
	switch {
	case !t.info.Has(submodules.FeatureStage):
		return unfit("sub-module %s cannot load beside what runs: stage the artifact without --load", t.r.Orchestrator)
	case len(meta.Components) == 0 && len(meta.Images) > 0 || pre.resolved.Project:
		return unfit("the metadata does not say what is in the artifact: make it with app-gen, or stage it without --load")
	}
	if t.a, err = e.Store.Create(t.app); err != nil {
		return err
	}
	t.r.Application, t.r.Created, t.r.BootID, t.r.Components = t.app, e.now(), e.bootID(), releaseComponents(meta.Components)
	t.r.Policy, t.r.Statement = nil, nil // they are in the artifact
	var needs []diskspace.Need
	var engine int64
	if meta.Sizes != nil {
		engine = meta.Sizes.Engine
	}
	if dir := t.dataRoot(ctx); dir != "" {
		needs = append(needs, diskspace.Need{Dir: diskspace.Existing(dir), Bytes: p.Margin})
	}
	if err := p.Room(engine); err != nil {
		return err
	}
	if err := e.undoDoomed(ctx); err != nil {
		return err
	}
	if _, err := t.checkSpace(ctx, meta, needs); err != nil {
		return err
	}
	l := t.loader(pre.resolved)
	l.imagesOnly = true
	return e.preload(ctx, t, store.NewLoadRecord(p.Digest, t.r, engine), func() error { return l.receive(ctx, p.Payload) })
}

func (e *Engine) preload(ctx context.Context, t *target, r store.LoadRecord, load func() error) (err error) {
	if err := r.Write(e.Store); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.undo(context.WithoutCancel(ctx), r))
		}
	}()
	// What a power cut leaves half of is verified when it is loaded again.
	if err := e.damaged().Add(t.r); err != nil {
		return err
	}
	if err := load(); err != nil {
		return err
	}
	if err := t.makeDurable(ctx); err != nil {
		return err
	}
	t.r.Complete = true
	err = r.Write(e.Store)
	t.r.Complete = err == nil
	return err
}

// Unload deletes the components of artifacts that are no longer staged, and of those whose
// loading was interrupted, unless something else needs them. It takes no lock if there
// are none.
func (e *Engine) Unload(ctx context.Context) error {
	if !e.Store.AnyDoomed() {
		return nil
	}
	release, err := e.lock(ctx, "unloading")
	if err != nil {
		return err
	}
	defer release()
	return e.undoDoomed(ctx)
}

func (e *Engine) undoDoomed(ctx context.Context) error {
	list, err := e.Store.DoomedRecords()
	for _, r := range list {
		err = errors.Join(err, e.undo(ctx, r))
	}
	return err
}

// undo deletes what a record names, and the record. The caller holds the lock.
func (e *Engine) undo(ctx context.Context, r store.LoadRecord) error {
	if r.Release.Complete && r.Staged(e.Store) {
		r.Release.Complete = false // so that the next call goes on after a kill
		if err := r.Write(e.Store); err != nil {
			return err
		}
	}
	a, err := e.Store.Create(r.Release.Application)
	if err == nil {
		err = e.damaged().Add(r.Release) // as discardRelease does
	}
	if err == nil {
		err = e.deleteComponents(ctx, a, r.Release)
	}
	if err != nil {
		return fmt.Errorf("components of %s could not be deleted, mender-app resume tries again: %w", r.Release.ArtifactName, err)
	}
	return r.Remove(e.Store)
}

// forgetLoaded undoes what is loaded of an application's staged artifacts, before PURGE
// removes everything that the application owns in the engine.
func (e *Engine) forgetLoaded(ctx context.Context, a *store.App) error {
	list, err := e.Store.LoadRecords()
	for _, r := range slices.DeleteFunc(list, func(r store.LoadRecord) bool { return r.Release.Application != a.Name }) {
		err = errors.Join(err, e.undo(ctx, r))
	}
	return err
}
