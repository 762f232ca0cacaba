package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// download settles deployments that earlier calls left open, refuses an artifact
// that does not fit this device, and loads the payload next to the running
// release.
func (e *Engine) download(ctx context.Context, tree *modules.Tree, payload modules.Streams) error {
	h, err := readHeader(tree, e.Platforms, e.Log)
	if err != nil {
		e.recordNewer(tree, err)
		return err
	}
	installed, err := tree.CurrentArtifactName()
	if err != nil {
		return err
	}
	if err := e.settle(ctx, installed, h.Meta.ApplicationName); err != nil {
		return err
	}
	_, err = e.load(ctx, &preflight{e: e, h: h}, payload)
	return err
}

// load begins a deployment and loads its release, if the artifact passes all checks.
func (e *Engine) load(ctx context.Context, p *preflight, payload modules.Streams) (*store.App, error) {
	started := e.now()
	if err := p.run(ctx); err != nil {
		e.recordRefusal(p.h, p.leader, started, err)
		return nil, err
	}
	a, err := e.begin(ctx, p)
	if err != nil {
		return nil, err
	}
	watched, stop := watchAbort(ctx, a)
	defer stop()
	if err := abortCause(watched, e.copyAndReceive(watched, a, p.resolved, payload)); err != nil {
		a.Deployment.Refused = faultOfArtifact(err) && !a.Deployment.Overwrites
		e.remember(a, err)
		return nil, err
	}
	return a, e.handleEvent(ctx, a, journal.EventReceived, p.h.Artifact)
}

// copyAndReceive loads the release that begin has recorded. Where loading
// overwrites components, they are copied first.
func (e *Engine) copyAndReceive(ctx context.Context, a *store.App, h *header, payload modules.Streams) error {
	t, err := e.target(ctx, a, a.Deployment.To)
	if err != nil {
		return err
	}
	if err := e.runPreload(ctx, a); err != nil {
		// Nothing has been loaded, so there is nothing to delete or to distrust.
		t.r.Components = nil
		if err := a.PutRelease(t.r); err != nil {
			e.Log.Warn("the record of the refused release could not be emptied", "app", a.Name, "error", err)
		}
		return err
	}
	if err := t.copyForDownload(ctx, h.Meta); err != nil {
		return err
	}
	return t.loader(h).receive(ctx, payload)
}

func (e *Engine) recordRefusal(h *header, leader *store.Leader, started time.Time, cause error) {
	d := e.newDeployment(h.Meta.ApplicationName, "refused-"+started.Format(time.RFC3339Nano))
	d.ArtifactName, d.Started, d.Error, d.Leader = h.Artifact, started, cause.Error(), leader
	e.Transcript.Follow(e.Store, h.Meta.ApplicationName, d.Number, "")
	e.Transcript.Fail(cause, e.now())
	err := e.Remember(e.Store, journal.RecordOf(h.Meta.ApplicationName, d, store.StatusRefused, e.now()))
	if err != nil {
		e.Log.Warn("the refusal could not be recorded in the history", "error", err)
	}
}

// recordNewer records the refusal of an artifact that is for a newer
// mender-app, if the artifact names its application.
func (e *Engine) recordNewer(tree *modules.Tree, cause error) {
	var needs *artifact.RequiresError
	if !errors.As(cause, &needs) || needs.Application == "" {
		return
	}
	name, err := tree.ArtifactName()
	if err != nil {
		return
	}
	e.recordRefusal(&header{Artifact: name, Meta: &artifact.Metadata{ApplicationName: needs.Application}}, nil, e.now(), cause)
}

// settle ends the open deployments of all applications: a client that begins a
// download has no other deployment open. installed is the artifact that the
// client believes is installed; incoming is the application that it installs now.
func (e *Engine) settle(ctx context.Context, installed, incoming string) error {
	if err := e.finishRepairs(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		// Continue: the new artifact may repair the application.
		e.Log.Error("a repair of images could not be finished", "error", err)
	}
	apps, err := e.Store.Apps()
	if err != nil {
		return err
	}
	for _, name := range e.inOrder(apps) {
		if e.Store.Legacy(name) || isGone(e.Store, name) {
			continue
		}
		a, err := e.open(name)
		if err != nil {
			if name == incoming {
				return err
			}
			e.Log.Error("the application cannot be read", "app", name, "error", err)
			continue
		}
		if a.Purge != "" {
			if err := e.finishPurge(ctx, a); err != nil {
				if name == incoming || ctx.Err() != nil {
					return err
				}
				e.Log.Error("an interrupted purge could not be finished", "app", name, "error", err)
			}
			continue
		}
		if a.Deployment == nil {
			e.tidy(ctx, a)
			continue
		}
		if name != incoming && waitsForLeader(e.Store, a) {
			continue // its leader could not be undone
		}
		if err := e.settleApp(ctx, a, installed); err != nil {
			if ctx.Err() != nil {
				return err
			}
			e.Log.Error("an interrupted deployment could not be undone", "app", name, "error", err)
			if name != incoming {
				continue // `mender-app resume` tries again
			}
			// Go on: the new artifact may repair the application.
			e.discardFailed(ctx, a)
			if err := e.toHistory(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleApp ends one open deployment. Afterwards the release runs that the
// client believes is installed.
func (e *Engine) settleApp(ctx context.Context, a *store.App, installed string) error {
	d := a.Deployment
	e.Log.Info("settling an interrupted deployment", "app", a.Name, "artifact", d.ArtifactName, "state", string(d.Phase))
	if d.Leader != nil {
		return e.settleMember(ctx, a)
	}
	confirmed := phaseOf(a) == journal.Cleaning || phaseOf(a) == journal.Committed && installed != "" && installed == d.ArtifactName
	if phaseOf(a) == journal.Failed {
		// The client may not know of the failure: what it takes for installed comes back.
		if err := e.enterRollingBack(ctx, a); err != nil {
			return err
		}
	}
	if !confirmed {
		if err := e.handleEvent(ctx, a, journal.EventRollback, d.ArtifactName); err != nil {
			return err
		}
	}
	return e.handleEvent(ctx, a, journal.EventCleanup, d.ArtifactName)
}

// begin records the deployment and its release before anything is loaded.
func (e *Engine) begin(ctx context.Context, p *preflight) (*store.App, error) {
	h := p.resolved
	name := h.Meta.ApplicationName
	if e.Store.Legacy(name) {
		if err := e.adopt(ctx, h, p.t); err != nil {
			return nil, err
		}
	}
	a, err := e.open(name)
	if errors.Is(err, store.ErrNoApp) {
		a, err = e.Store.Create(name)
	}
	if err != nil {
		return nil, err
	}
	if err := e.Store.KeepReserve(); err != nil {
		return nil, err
	}
	id := a.NextID(h.Artifact)
	a.Deployment = e.newDeployment(name, id)
	a.Deployment.ArtifactName, a.Deployment.From, a.Deployment.To = h.Artifact, a.Current, id
	a.Deployment.Leader, a.Deployment.Members = p.leader, p.members
	if err := e.enter(a, journal.Downloading); err != nil {
		return nil, err
	}
	r := h.Release()
	r.ID, r.Created, r.BootID = id, e.now(), e.bootID()
	r.Components, r.Unstarted = releaseComponents(h.Meta.Components), e.staysLoaded(a)
	if p.leader == nil { // what a person said is about the one that was asked for
		r.KeepServices, r.KeepOverrides = e.Reuse.Services, e.Reuse.Overrides
	}
	return a, a.PutRelease(r)
}

// newDeployment makes the journal of a deployment that begins now.
func (e *Engine) newDeployment(app, id string) *store.Deployment {
	return &store.Deployment{ID: id, Number: e.Store.NextDeployment(app), Driver: e.Driver, Asked: e.Asked.OrNil(), Started: e.now()}
}
