package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/client"
)

// traceInstall notes whether the client has begun to change what runs.
func traceInstall(c *client.Client) (began *bool) {
	began = new(bool)
	trace := c.Trace
	c.Trace = func(s modules.State) {
		if s == modules.ArtifactInstall {
			*began = true
		}
		trace(s)
	}
	return began
}

// afterSignal is the error of an installation: if a signal ended it, it says what
// became of the update.
func afterSignal(ctx context.Context, c *client.Client, began bool, err error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		return err
	}
	r, rerr := c.Read()
	if !byCancel(err) || rerr != nil || r.Open != nil || r.Installed.Before != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	what := "nothing was changed"
	if began {
		what = "the update was rolled back"
	}
	return fmt.Errorf("%w: %s; installed is %s", cause, what, orNothing(r.Installed.ArtifactName))
}

// byCancel reports whether an error only says that the installation was stopped.
func byCancel(err error) bool {
	var call *client.CallError
	return errors.Is(err, context.Canceled) || errors.As(err, &call) && (call.Code == device.ExitStopped || call.Code < 0)
}
