package deploy

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file is about releases that failed to start and stay as they are, for a
// person: upgrades.rollback_on_failure = false in their policy. Such a release becomes
// the current one and is marked. The client must not believe that the old release is
// back, so SupportsRollback is answered No, and ArtifactRollback fails for a client that
// keeps an earlier answer. If the client is interrupted before it has cleaned up, it may
// know nothing of the failure: then the old release comes back.

// failedToStart reports whether err is about the release itself: its sub-module or one of its
// hooks reports it. An engine that does not answer says nothing of the release.
func failedToStart(err error) bool {
	if errors.Is(err, submodules.ErrRequirement) {
		return false
	}
	var failed *submodules.CallError
	return errors.As(err, &failed) || errors.Is(err, submodules.ErrUnhealthy) || errors.Is(err, hooks.ErrFailed)
}

// faultOfArtifact reports whether a download failed because of the artifact itself. One
// that failed because this machine could not read or write may succeed next time.
func faultOfArtifact(err error) bool {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return false
	}
	for _, reason := range []error{ErrUnfit, hold.ErrHeld, artifact.ErrPayload, artifact.ErrTooLarge, submodules.ErrContent, submodules.ErrBase} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// StaysFailed reports whether the new release of the tree's artifact has failed to start and
// stays as it is.
func StaysFailed(s *store.Store, tree *modules.Tree) bool {
	raw, err := tree.MetaData()
	if err != nil || raw == nil {
		return false
	}
	meta, _, err := artifact.ParseMetadata(raw)
	if err != nil {
		return false
	}
	a, err := s.App(meta.ApplicationName)
	return err == nil && a.Deployment != nil && a.Deployment.Phase == journal.Failed
}
