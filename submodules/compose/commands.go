package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/docker/docker/client"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// This file keeps the containers that a command of an application runs in. They belong to
// no service, so nothing else stops and removes them.

// labelRun marks the containers. Its value is the application.
const labelRun = "mender-app.run"

// maxLines is how many lines of a command's output are logged.
const maxLines = 200

// patience bounds the removal after a call was ended: who ended it waits for 3 s.
const patience = 2 * time.Second

// pause is between two attempts to remove what somebody else removes.
const pause = 50 * time.Millisecond

// removeCommands kills and removes the containers of an application's commands. A call that was
// killed may have left one, and the engine goes on with it.
func removeCommands(ctx context.Context, e *client.Client, app string, log func(format string, args ...any)) error {
	list, err := e.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelRun+"="+app))})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range list {
		log("removing container %s, in which a command was run", strings.TrimPrefix(strings.Join(c.Names, " "), "/"))
		// Its volumes without names go with it; those with names are data. A conflict says
		// that somebody else removes it: its command may still run, so that is waited for.
		err := e.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		for docker.IsConflict(err) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("remove container %s: %w", c.ID, err)
			case <-time.After(pause):
			}
			err = e.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		}
		if err != nil && !docker.IsNotFound(err) {
			return fmt.Errorf("remove container %s: %w", c.ID, err)
		}
	}
	return nil
}

// runInContainer calls run, which runs a command in a marked container and returns when the command
// has ended. Nothing of that is left when Run returns, and nothing was there before.
func runInContainer(ctx context.Context, e *client.Client, app string, log func(format string, args ...any), run func() error) error {
	if err := removeCommands(ctx, e, app, log); err != nil {
		return err
	}
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return removeCommands(ctx, e, app, log)
	}
	// The command ends at once then, and whoever started it need not be waited for.
	stop := context.AfterFunc(ctx, func() { _ = remove() })
	err := run()
	stop()
	return cmp.Or(err, remove())
}

// commandLines logs the lines of a command in a service, but no more than there is room for. What
// it returns may be called for standard output and standard error at the same time.
func commandLines(service string, log func(string)) func(string) {
	var lock sync.Mutex
	n := 0
	return func(line string) {
		lock.Lock()
		defer lock.Unlock()
		switch n++; {
		case n <= maxLines:
			log(service + " | " + line)
		case n == maxLines+1:
			log(service + " | (more output left out)")
		}
	}
}

// progress matches what Compose says of its own work on standard error, before the command
// starts.
var progress = regexp.MustCompile(`^(Network|Volume|Container) .* (Creating|Created|Starting|Started)$`)

// commandReason says why a command failed, with the last line of its standard error or, when it
// wrote none, of its standard output.
func commandReason(err error, service, output, complaint string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if progress.MatchString(complaint) {
		complaint = ""
	}
	err = fmt.Errorf("the command in %s exited with %d", service, exit.ExitCode())
	if last := cmp.Or(complaint, output); last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	return err
}
