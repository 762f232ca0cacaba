package deploy

import (
	"errors"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/deploy/moments"
	"github.com/mender-app/mender-app/modules/deploy/policies"
	"github.com/mender-app/mender-app/modules/deploy/transition"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// With upgrades.rollback_on_failure = false in its policy, a new release that fails to
// start stays as it is, for a person. It becomes the current release and is marked as
// failed. The client must not believe that the old release is back, so SupportsRollback
// is answered No, and ArtifactRollback fails for a client that keeps an earlier answer.
// If the client is interrupted before it has cleaned up, it may know nothing of the
// failure: then the old release comes back (see settleApp).

// leftToPerson reports whether the new release of a's deployment, which failed with err,
// stays as it is.
func (e *Engine) leftToPerson(a *store.App, err error) bool {
	d := a.Deployment
	if d.Reused || !failedToStart(err) {
		return false
	}
	r, rerr := a.Release(d.To)
	return rerr == nil && !policies.Of(e.Log, a.Name, r).RollsBack()
}

// failedToStart reports whether err is about the release itself: its sub-module or one of
// its hooks reports it. An engine that does not answer says nothing of the release.
func failedToStart(err error) bool {
	if errors.Is(err, submodules.ErrRequirement) {
		return false
	}
	var failed *submodules.CallError
	return errors.As(err, &failed) || errors.Is(err, submodules.ErrUnhealthy) || errors.Is(err, moments.ErrFailed)
}

// replace makes the new release of a's deployment the current one, and keeps the one
// before. One that had failed is not kept.
func replace(a *store.App) {
	d := a.Deployment
	kept := slices.DeleteFunc(slices.Clone(a.Kept), func(id string) bool { return id == d.To || id == d.From })
	if d.From != "" && !a.HasFailed(d.From) {
		kept = slices.Insert(kept, 0, d.From)
	}
	a.Current, a.Kept, a.Stopped = d.To, kept, false
}

// Stays reports whether the new release of the tree's artifact has failed to start and
// stays as it is.
func Stays(s *store.Store, tree *modules.Tree) bool {
	raw, err := tree.MetaData()
	if err != nil || raw == nil {
		return false
	}
	meta, _, err := artifact.ParseMetadata(raw)
	if err != nil {
		return false
	}
	a, err := s.App(meta.ApplicationName)
	return err == nil && phaseOf(a) == transition.Failed
}
