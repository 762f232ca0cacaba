package submodules

import (
	"context"
	"errors"
)

// CommandRunner is a Session with the feature run/1.
type CommandRunner interface {
	// Run runs the words of the request once, in a container of the service of the
	// request, and returns when nothing of that is left.
	Run(ctx context.Context) error
}

func runCommand(ctx context.Context, c *call) error {
	r, ok := c.session.(CommandRunner)
	if !ok {
		return Mark(errors.New("this sub-module cannot run commands"), ErrUsage)
	}
	return r.Run(ctx)
}

// Run runs r.Words once in a container of r.Service as the manifests in r.Dir have it
// (feature run/1). With OptionProbe it only makes sure that this could be done.
func (m *Module) Run(ctx context.Context, r Request) error {
	return m.run(ctx, r, nil, VerbRun, append([]string{r.App, r.Dir, r.Service}, r.Words...)...)
}
