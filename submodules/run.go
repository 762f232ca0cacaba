package submodules

import (
	"context"
)

// CommandRunner is a Session with the feature run/1.
type CommandRunner interface {
	// Run runs the words of the request once, in a container of the service of the
	// request, and returns when the container is gone.
	Run(ctx context.Context, r RunRequest) error
}
