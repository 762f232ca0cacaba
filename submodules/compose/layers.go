package compose

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// blame says in an error that the project can be read without the overrides.
func (s *session) blame(ctx context.Context, c *command, dir, existing string, strict bool, cause error) error {
	if len(s.req.Overrides) == 0 || ctx.Err() != nil {
		return cause
	}
	bare := *s
	bare.req.Overrides = nil
	if _, err := bare.readProject(ctx, c, dir, existing, strict); err != nil {
		return err // they are not the reason
	}
	return fmt.Errorf("with the overrides: %w", cause)
}

// Render implements submodules.Renderer.
func (s *session) Render(ctx context.Context, _ submodules.Request) ([]byte, error) {
	pl, err := s.read(ctx, func(_ string, all []container.Summary) []container.Summary { return s.owned(all) })
	if err != nil {
		return nil, err
	}
	out, said := submodules.Capped{Max: rules.MaxModel}, &tail{}
	if err := pl.project.run(ctx, pl.compose.limited(readProcessor), &out, said, "config"); err != nil {
		return nil, said.reason(err)
	}
	return out.Bytes(), nil // no more than the model, which is bounded
}
