package compose

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/bounds"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// upMargin is how long `docker compose up` may take beyond the deadline for health.
const upMargin = time.Minute

// overridden returns the project with the file of override.
func (s *session) overridden(pl *plan) (*project, error) {
	over, err := pl.override(s.req.App, s.req.TempDir)
	p := *pl.project
	if over != "" {
		p.files = append(slices.Clip(p.files), over)
	}
	return &p, err
}

// up runs `docker compose up` without pulling and building; it recreates only what
// changed.
func (s *session) up(ctx context.Context, pl *plan, before map[string]int) error {
	p, err := s.overridden(pl)
	if err != nil {
		return err
	}
	// up waits for services that others depend on, until the deadline. Another
	// minute is for stopping and starting.
	upCtx, cancel := context.WithTimeout(ctx, s.set.deadline+upMargin)
	defer cancel()
	args := p.args("up", "--detach", "--pull", "never", "--no-build")
	said, err := s.tryUp(upCtx, pl, args)
	port, stale := uint16(0), false
	if err != nil {
		port, stale = s.stalePort(ctx, said.text())
	}
	if restart := restartCommand(s.set.restartEngine, s.engine.Host(), exists); stale && restart != nil && (s.mustStart || s.isAlone(ctx, pl)) {
		s.req.Logf("the engine holds port %d for a container that is gone, as after a power loss: restarting the engine (%s)", port, strings.Join(restart, " "))
		if err := s.restartEngine(ctx, restart); err != nil {
			return fmt.Errorf("docker compose up failed half-way: %w", err)
		}
		said, err = s.tryUp(upCtx, pl, args)
		stale = false
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, bounds.ErrOver) {
		return fmt.Errorf("docker compose up failed half-way: %w", err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("docker compose up was ended half-way: %w", ctx.Err())
	}
	reason := said.reason(err)
	if stale {
		reason = fmt.Errorf("%w; the engine holds port %d for a container that is gone: restart the engine", reason, port)
	}
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

// tryUp runs up, again if the engine was busy. It returns what Compose said last.
func (s *session) tryUp(ctx context.Context, pl *plan, args []string) (*tail, error) {
	for try := 1; ; try++ {
		said := &tail{log: s.req.Log}
		if err := s.heal(ctx, pl); err != nil {
			return said, err
		}
		err := pl.compose.limited(s.set.deadline+upMargin).run(ctx, pl.dir, said, said, args...)
		if err == nil {
			said.flush()
			return said, nil
		}
		if try == upTries || errors.Is(err, bounds.ErrOver) || !conflict(said.text()) || ctx.Err() != nil {
			return said, err
		}
		s.req.Logf("trying again: the engine is still busy with what was asked before")
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
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
	for _, c := range s.from(pl.dir, list) {
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
