package compose

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// upMargin is how long `docker compose up` may take beyond the deadline for health.
const upMargin = time.Minute

// up runs `docker compose up` without pulling and building; it recreates only what
// changed.
func (s *session) up(ctx context.Context, pl *plan, before map[string]int, more ...string) error {
	files := pl.files
	over, err := pl.override(s.req.App, s.req.TempDir)
	if err != nil {
		return err
	}
	p := *pl.project
	if over != "" {
		p.files = append(append([]string{}, files...), over)
	}
	// up waits for services that others depend on, until the deadline. Another
	// minute is for stopping and starting.
	upCtx, cancel := context.WithTimeout(ctx, s.set.deadline+upMargin)
	defer cancel()
	args := p.args(append([]string{"up", "--detach", "--pull", "never", "--no-build"}, more...)...)
	said := &tail{}
	for try := 1; ; try++ {
		if err := s.heal(ctx, pl); err != nil {
			return err
		}
		said = &tail{log: s.req.Log}
		if err = pl.compose.limited(s.set.deadline+upMargin).run(upCtx, pl.dir, said, said, args...); err == nil {
			said.flush()
			return nil
		}
		if try == upTries || errors.Is(err, errOver) || !conflict(said.text()) || upCtx.Err() != nil {
			break
		}
		s.req.Logf("trying again: the engine is still busy with what was asked before")
		select {
		case <-upCtx.Done():
		case <-time.After(time.Second):
		}
	}
	if errors.Is(err, errOver) {
		return fmt.Errorf("docker compose up failed half-way: %w", err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("docker compose up was ended half-way: %w", ctx.Err())
	}
	reason := said.reason(err)
	// A service that failed by itself explains more than Compose's message.
	if f, xerr := s.examine(ctx, pl.project, before); xerr == nil && f.condition == failed {
		return submodules.Mark(fmt.Errorf("docker compose up failed half-way: service %s %s (%w)%s", f.service, f.text, reason, s.lastWords(ctx, f)), submodules.ErrUnhealthy)
	}
	err = fmt.Errorf("docker compose up failed half-way: %w", reason)
	switch text := said.text(); {
	case strings.Contains(text, "no space left on device"):
		return submodules.Mark(err, submodules.ErrSpace)
	case strings.Contains(text, "dependency failed to start"), errors.Is(upCtx.Err(), context.DeadlineExceeded):
		return submodules.Mark(err, submodules.ErrUnhealthy)
	}
	return err
}

// upTries is how often up is tried when the engine is busy.
const upTries = 3

// conflict matches the engine's errors while a request of a killed Compose is still
// being carried out.
func conflict(text string) bool {
	for _, s := range []string{"is already in use by container", "is already in progress", "is marked for removal", "No such container"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// The name that Compose gives a container that is to replace another one.
var replacement = regexp.MustCompile(`^[0-9a-f]{12}_`)

// heal removes what a killed Compose left half-way: replacements that were never
// started. Compose would fail on them, because both they and the containers they
// replace count as the service's.
func (s *session) heal(ctx context.Context, pl *plan) error {
	list, err := s.containers(ctx, labelProject+"="+pl.name)
	if err != nil {
		return err
	}
	for _, c := range from(pl.dir, list) {
		if c.State != container.StateCreated || !replacement.MatchString(name(c)) {
			continue
		}
		s.req.Logf("removing %s, which an interrupted update left", name(c))
		err := s.engine.Client().ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true})
		if err != nil && !docker.IsNotFound(err) && !docker.IsConflict(err) {
			return fmt.Errorf("remove container %s: %w", name(c), err)
		}
	}
	return nil
}
