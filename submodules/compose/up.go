package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/submodules"
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
func (s *session) up(ctx context.Context, pl *plan, before map[string]bygone) error {
	// up waits for services that others depend on, until the deadline. Another
	// minute is for stopping and starting.
	upCtx, cancel := context.WithTimeout(ctx, s.set.deadline+upMargin)
	defer cancel()
	noted := s.noteMaking(pl)
	defer func() {
		if ctx.Err() == nil { // else nobody has waited
			noted()
		}
	}()
	said, err := s.tryUp(upCtx, pl, before)
	why := ""
	if err != nil {
		why = s.brokenEngine(ctx, said.text())
	}
	if restart := restartCommand(s.set.restartEngine, s.engine.Host(), exists); why != "" && restart != nil && (s.mustStart || s.isAlone(ctx, pl)) {
		s.req.Logf("%s: restarting the engine (%s)", why, strings.Join(restart, " "))
		if err := s.restartEngine(ctx, restart); err != nil {
			return fmt.Errorf("docker compose up failed half-way: %w", err)
		}
		said, err = s.tryUp(upCtx, pl, before)
		why = ""
	}
	if err == nil {
		return nil
	}
	s.settleUp(ctx, pl)
	if errors.Is(err, errOverrun) {
		return fmt.Errorf("docker compose up failed half-way: %w", err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("docker compose up was ended half-way: %w", ctx.Err())
	}
	reason := said.reason(err)
	if why != "" {
		reason = fmt.Errorf("%w; %s: restart the engine", reason, why)
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

// tryUp runs up, again if the engine was busy or has lost what up needs. It returns what
// Compose said last.
func (s *session) tryUp(ctx context.Context, pl *plan, before map[string]bygone) (*tail, error) {
	said := &tail{}
	var left []string // services that the try before left incomplete
	for try := 1; ; try++ {
		anew, err := s.restore(ctx, pl, before, said.text())
		if err != nil {
			return said, err
		}
		for _, svc := range left {
			if !slices.Contains(anew, svc) {
				anew = append(anew, svc)
			}
		}
		said = &tail{log: s.req.Log}
		if len(anew) > 0 {
			// Those that they depend on are made too, where they are missing. The other call
			// starts all of them in their order.
			err = s.compose(ctx, pl, said, append([]string{"--no-start", "--force-recreate"}, anew...)...)
		}
		if err == nil {
			err = s.startAll(ctx, pl, said)
		}
		if ctx.Err() != nil || errors.Is(err, errOverrun) {
			return said, err
		}
		if err != nil {
			s.settleUp(ctx, pl)
		}
		var lerr error
		left, lerr = s.incomplete(ctx, pl, err == nil)
		switch {
		case lerr != nil:
			return said, cmp.Or(err, lerr)
		case err != nil && try < upTries && strings.Contains(said.text(), "dependency failed to start") && s.awaitChecks(ctx, pl.project, before):
			continue // Compose judged a dependency by a check that was too old
		case len(left) == 0 && (err == nil || !recoverable(said.text()) && !wasKilled(err)):
			said.flush()
			return said, err
		case try == upTries:
			return said, cmp.Or(err, fmt.Errorf("the engine has lost something of service %s, and Compose does not make it again", strings.Join(left, ", ")))
		}
		if err != nil {
			s.req.Logf("trying again: Compose was killed, the engine is still busy with what was asked before, or it has lost something")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// compose runs `docker compose up` with more arguments.
func (s *session) compose(ctx context.Context, pl *plan, said *tail, more ...string) error {
	p, err := s.overridden(pl)
	if err != nil {
		return err
	}
	if pl.waits != "" {
		p.files = append(slices.Clip(p.files), pl.waits)
	}
	args := append([]string{"up", "--pull", "never", "--no-build"}, more...)
	steps := &tail{log: pl.asked.note}
	all := io.MultiWriter(said, steps)
	err = p.run(ctx, pl.compose.limited(s.set.deadline+upMargin), all, all, args...)
	steps.flush()
	return err
}

// upTries is how often up is tried.
const upTries = 3
