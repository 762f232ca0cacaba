package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// Handle executes a state of the Mender client. It does nothing for states that
// only ask a question (see Reply) and for unknown states.
func (e *Engine) Handle(ctx context.Context, state modules.State, tree *modules.Tree) error {
	work, ok := map[modules.State]func(context.Context, *modules.Tree) error{
		modules.Download: func(ctx context.Context, t *modules.Tree) error {
			return e.download(ctx, t, t.Streams(false))
		},
		modules.DownloadWithFileSizes: func(ctx context.Context, t *modules.Tree) error {
			return e.download(ctx, t, t.Streams(true))
		},
		modules.ArtifactInstall:              e.install,
		modules.ArtifactCommit:               e.mustOn(journal.EventCommit),
		modules.ArtifactRollback:             e.mayOn(journal.EventRollback),
		modules.ArtifactFailure:              e.mayOn(journal.EventFailure),
		modules.Cleanup:                      e.mayOn(journal.EventCleanup),
		modules.ArtifactReboot:               e.mustOn(journal.EventReboot),
		modules.ArtifactVerifyReboot:         e.mustOn(journal.EventVerifyReboot),
		modules.ArtifactRollbackReboot:       e.mayOn(journal.EventReboot),
		modules.ArtifactVerifyRollbackReboot: e.mayOn(journal.EventVerifyRollback),
	}[state]
	if !ok {
		return nil
	}
	lock := e.lock
	if undoes[state] || state == modules.ArtifactCommit {
		lock = e.lockToEnd
	}
	release, err := lock(ctx, string(state))
	if err != nil {
		if undoes[state] && e.nothingTouched(err, tree) {
			e.Log.Info("nothing that runs was touched for this artifact", "reason", err)
			return nil
		}
		return err
	}
	defer release()
	err = work(ctx, tree)
	if err != nil && state == modules.Cleanup && ctx.Err() == nil && e.canWait(tree) {
		e.Log.Error("the cleanup is left to the next installation", "error", err)
		return nil
	}
	return err
}

// canWait reports whether a failed Cleanup may wait for the next installation:
// the right release runs, and only files were left to remove. After an error the
// client would call the device inconsistent.
func (e *Engine) canWait(tree *modules.Tree) bool {
	h, err := readHeader(tree, e.Platforms, e.Log)
	if err != nil {
		return true
	}
	a, err := e.Store.App(h.Meta.ApplicationName)
	if err != nil {
		return false
	}
	switch touchedPhaseOf(a) {
	case journal.Installing, journal.Installed, journal.RollingBack:
		return false
	}
	return true
}

// undoes are the states that do nothing if nothing was begun.
var undoes = map[modules.State]bool{
	modules.ArtifactRollback: true, modules.ArtifactFailure: true, modules.Cleanup: true,
}

// nothingTouched reports whether the running release is unchanged although the
// store cannot be written (read-only, or full before the first installation): the
// download, or the step after it, failed for the same reason. After an error the
// client would call the device inconsistent. A later call that can write removes
// what was loaded.
func (e *Engine) nothingTouched(cause error, tree *modules.Tree) bool {
	var locked *store.LockedError
	if errors.As(cause, &locked) {
		return false
	}
	h, err := readHeader(tree, e.Platforms, e.Log)
	if err != nil {
		return true
	}
	a, err := e.Store.App(h.Meta.ApplicationName)
	if errors.Is(err, store.ErrNoApp) {
		return true
	}
	if err != nil {
		return false
	}
	switch touchedPhaseOf(a) {
	case journal.None, journal.Downloading, journal.Loaded, journal.RolledBack:
		return true
	}
	return checkArtifact(a, h) != nil
}

// install starts the downloaded release. If the client stored the payload instead
// of streaming it to Download, the payload is loaded first.
func (e *Engine) install(ctx context.Context, tree *modules.Tree) error {
	h, err := readHeader(tree, e.Platforms, e.Log)
	if err != nil {
		return err
	}
	a, err := e.find(h)
	if err != nil {
		return err
	}
	if a == nil || a.Deployment == nil {
		if _, stored := tree.Files(); stored && !(a != nil && a.IsCurrent(h.Artifact)) {
			files, err := tree.StoredFiles()
			if err != nil {
				return err
			}
			if err := e.download(ctx, tree, files); err != nil {
				return err
			}
			if a, err = e.find(h); err != nil {
				return err
			}
		}
	}
	if a == nil {
		return fmt.Errorf("%s: %s", h.Meta.ApplicationName, journal.PlanWithout(journal.EventInstall).Refuse)
	}
	if err := checkArtifact(a, h); err != nil {
		return err
	}
	return e.handleEvent(ctx, a, journal.EventInstall, h.Artifact)
}

// find returns the application that a call is about; nil if the store has none.
func (e *Engine) find(h *header) (*store.App, error) {
	a, err := e.open(h.Meta.ApplicationName)
	if errors.Is(err, store.ErrNoApp) {
		return nil, nil
	}
	return a, err
}

// checkArtifact refuses an open deployment of another artifact, and one that follows
// another deployment.
func checkArtifact(a *store.App, h *header) error {
	if d := a.Deployment; d != nil && d.Leader != nil {
		return open(d)
	}
	if d := a.Deployment; d != nil && d.ArtifactName != h.Artifact {
		return fmt.Errorf("%s: the open deployment is of artifact %q, not %q", a.Name, d.ArtifactName, h.Artifact)
	}
	return nil
}

// mustOn handles a state that is an error for an unknown application.
func (e *Engine) mustOn(ev journal.Event) func(context.Context, *modules.Tree) error {
	return func(ctx context.Context, tree *modules.Tree) error {
		h, err := readHeader(tree, e.Platforms, e.Log)
		if err != nil {
			return err
		}
		a, err := e.find(h)
		if err != nil {
			return err
		}
		if a == nil {
			return fmt.Errorf("%s: %s", h.Meta.ApplicationName, journal.PlanWithout(ev).Refuse)
		}
		if err := checkArtifact(a, h); err != nil {
			return err
		}
		return e.handleEvent(ctx, a, ev, h.Artifact)
	}
}

// mayOn handles a state that undoes or ends. If nothing was begun it succeeds:
// after an error the client would call the device inconsistent.
func (e *Engine) mayOn(ev journal.Event) func(context.Context, *modules.Tree) error {
	return func(ctx context.Context, tree *modules.Tree) error {
		h, err := readHeader(tree, e.Platforms, e.Log)
		if err != nil {
			// Download refused it for the same reason.
			e.Log.Info("nothing was begun for this artifact", "reason", err)
			return nil
		}
		a, err := e.find(h)
		if err != nil {
			return err
		}
		if a == nil {
			e.Log.Info(journal.PlanWithout(ev).Note, "app", h.Meta.ApplicationName)
			return nil
		}
		if err := checkArtifact(a, h); err != nil {
			e.Log.Info("nothing to do", "reason", err)
			return nil
		}
		if ev == journal.EventCleanup && phaseOf(a) == journal.RollingBack && a.Deployment.Attempts > 1 {
			// ArtifactRollback and ArtifactFailure both failed to roll back, and
			// a third attempt would fail in the same way. The deployment stays
			// open for the next installation or `mender-app resume`. (3.4.0's
			// rollback does not call ArtifactFailure.)
			e.Log.Error("the rollback failed; run mender-app resume, or install a working artifact",
				"app", a.Name, "error", a.Deployment.Error)
			return nil
		}
		return e.handleEvent(ctx, a, ev, h.Artifact)
	}
}
