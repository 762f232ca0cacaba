package deploy

import (
	"fmt"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/statement"
)

// checkStatement refuses an artifact that is not what its statement says, or
// whose statement does not come from who may replace the application. No payload
// has been read.
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

// stated returns an error unless the manifests are those of the statement.
func (h *header) stated(manifests digest.Digest) error {
	if h.statement == nil || h.statement.Manifests == manifests {
		return nil
	}
	return fmt.Errorf("%w: the manifests are not those that the artifact's statement is about: their digest is %s, and it says %s",
		artifact.ErrPayload, manifests, h.statement.Manifests)
}
