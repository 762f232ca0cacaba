package compose

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mender-app/mender-app/submodules"
)

// orGone marks the error of a call in whose middle the engine went away, as for its restart:
// the caller waits for the engine and calls again.
func (s *session) orGone(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	lost := isGone(err.Error())
	if s.times != nil && s.times.Lost() && errors.Is(err, submodules.ErrUnhealthy) {
		// Its services ended with it, and some do not start again with it.
		lost, err = true, fmt.Errorf("the engine went away in the middle: %v", err)
	}
	if _, perr := s.engine.Client().Ping(ctx); perr != nil || lost {
		return submodules.Mark(err, submodules.ErrRequirement)
	}
	return err
}

// isGone reports whether an engine's client lost the engine. It may be back already.
func isGone(said string) bool {
	return strings.Contains(said, "error during connect") || strings.Contains(said, "Cannot connect to the Docker daemon")
}
