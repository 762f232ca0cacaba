package deploy

import (
	"fmt"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/statement"
)

// checkStatement refuses an artifact that differs from its statement, or whose
// signer may not replace the application. No payload has been read then.
func (e *Engine) checkStatement(h *header) error {
	h.statement = nil
	if h.meta.Statement != nil {
		s, err := statement.Parse(h.meta.Statement)
		if err == nil {
			err = s.Check(h.meta)
		}
		if err != nil {
			return unfit("%w", err)
		}
		h.statement = s
	}
	if e.Trust == nil {
		return nil
	}
	return e.Trust(h.meta.ApplicationName, h.statement)
}

// manifestLimits are the bounds that the metadata announces for the manifests.
func (h *header) manifestLimits() (limits artifact.ManifestLimits) {
	if s := h.meta.Sizes; s != nil {
		limits.MaxBytes = s.ManifestsPayload
	}
	return limits
}

// checkManifests returns an error if the manifests are not those of the statement.
func (h *header) checkManifests(manifests digest.Digest) error {
	if h.statement == nil || h.statement.Manifests == manifests {
		return nil
	}
	return fmt.Errorf("%w: the manifests are not those that the artifact's statement is about: their digest is %s, and it says %s",
		artifact.ErrPayload, manifests, h.statement.Manifests)
}
