package compose

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// condition is how a container or a service is.
type condition int

const (
	well    condition = iota // running and, if it has a health check, healthy; or it did its one job
	pending                  // may become well
	failed                   // will not
)

// judge says how a container is. restarts is its restart count before it was
// watched, allowed what is forgiven beyond.
func judge(c container.InspectResponse, restarts, allowed int) (condition, string) {
	st := c.State
	switch {
	case st == nil:
		return pending, "is in no state"
	case st.Restarting, c.RestartCount > restarts+allowed:
		return failed, fmt.Sprintf("restarts (exit code %d)", st.ExitCode)
	case st.Paused:
		return failed, "is paused"
	case st.Running:
		if st.Health == nil || st.Health.Status == container.NoHealthcheck || st.Health.Status == "" {
			return well, "is running"
		}
		switch st.Health.Status {
		case container.Healthy:
			return well, "is healthy"
		case container.Unhealthy:
			return failed, "is unhealthy" + lastCheck(st.Health)
		}
		return pending, "is not healthy yet" + lastCheck(st.Health)
	case st.Status == "exited" || st.Status == "dead":
		if st.ExitCode == 0 && oneShot(c) {
			return well, "is done"
		}
		if st.OOMKilled {
			return failed, "ran out of memory and was killed"
		}
		return failed, fmt.Sprintf("exited with code %d", st.ExitCode)
	case st.Error != "":
		return failed, "could not be started: " + st.Error
	}
	return pending, "is " + string(st.Status)
}

// oneShot reports whether a container may end by itself when it did well.
func oneShot(c container.InspectResponse) bool {
	if c.HostConfig == nil {
		return true
	}
	p := c.HostConfig.RestartPolicy
	return p.IsNone() || p.IsOnFailure()
}

func lastCheck(h *container.Health) string {
	if len(h.Log) == 0 {
		return ""
	}
	last := h.Log[len(h.Log)-1]
	out := strings.Join(strings.Fields(strings.ToValidUTF8(last.Output, "?")), " ")
	if len(out) > 200 {
		out = out[:200] + "…"
	}
	if last.ExitCode == 0 {
		return ""
	}
	return fmt.Sprintf(": the last check failed with %d: %s", last.ExitCode, out)
}

// finding is the state of a service that is not well.
type finding struct {
	condition condition
	service   string
	container string // ID, or ""
	text      string
}

// examine looks at all containers of the project, and returns the worst there
// is to find; well if all is. before has the restart counts to start from.
func (s *session) examine(ctx context.Context, p *project, before map[string]int) (finding, error) {
	list, err := s.containers(ctx, labelProject+"="+p.name)
	if err != nil {
		return finding{}, err
	}
	count := map[string]int{}
	worst := finding{}
	worse := func(f finding) {
		if f.condition > worst.condition {
			worst = f
		}
	}
	for _, c := range from(p.dir, list) {
		svc := c.Labels[labelService]
		if _, ok := p.model.Services[svc]; !ok {
			continue
		}
		full, err := s.engine.Client().ContainerInspect(ctx, c.ID)
		if docker.IsNotFound(err) {
			continue
		}
		if err != nil {
			return finding{}, fmt.Errorf("inspect container %s: %w", name(c), err)
		}
		count[svc]++
		cond, text := judge(full, before[c.ID], int(s.set.restarts))
		worse(finding{cond, svc, c.ID, text})
	}
	for _, svc := range p.model.names() {
		if want := p.model.Services[svc].containers(); count[svc] < want {
			worse(finding{condition: pending, service: svc, text: fmt.Sprintf("has %d of %d containers", count[svc], want)})
		}
	}
	return worst, nil
}

// watchInterval is how often the engine is asked although no event came: an
// event can be lost with the connection.
const watchInterval = 5 * time.Second

// watch returns nil when every service of the project has been well for the
// stability window, and an ErrUnhealthy as soon as one will not be, or the
// deadline has passed. The engine's events say when to look again.
func (s *session) watch(ctx context.Context, p *project, before map[string]int) error {
	deadline := time.NewTimer(s.set.deadline)
	defer deadline.Stop()
	evCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	news, errs := s.engine.Client().Events(evCtx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", "container"), filters.Arg("label", labelProject+"="+p.name))})
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	stable := time.NewTimer(s.set.window)
	defer stable.Stop()
	calm := true // the timer stable is running
	elapsed := false
	for {
		f, err := s.examine(ctx, p, before)
		if err != nil {
			return err
		}
		switch f.condition {
		case failed:
			return s.unhealthy(ctx, f, "")
		case pending:
			calm, elapsed = false, false
			stable.Stop()
		case well:
			if elapsed {
				return nil
			}
			if !calm {
				calm = true
				stable.Reset(s.set.window)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			if f.condition == pending {
				return s.unhealthy(ctx, f, fmt.Sprintf(" after %v", s.set.deadline))
			}
			// All is well, only not for long enough: the window decides.
			deadline.Reset(s.set.window + time.Second)
		case <-stable.C:
			elapsed = calm
		case <-tick.C:
		case <-errs:
			errs = nil // the ticker goes on
		case <-news:
		}
	}
}

// unhealthy shows the log of what failed, and makes the error of it.
func (s *session) unhealthy(ctx context.Context, f finding, more string) error {
	if f.container != "" {
		s.showLogs(ctx, f.container, f.service)
	}
	return submodules.Mark(fmt.Errorf("service %s %s%s", f.service, f.text, more), submodules.ErrUnhealthy)
}

// alive reports whether everything the application should run is running.
func (s *session) alive(ctx context.Context) (bool, error) {
	return s.ask(ctx, func(c container.InspectResponse) bool {
		return c.State != nil && (c.State.Running && !c.State.Restarting || c.State.Status == "exited" && c.State.ExitCode == 0 && oneShot(c))
	})
}

// healthy reports whether it is alive, healthy, and has not restarted lately.
func (s *session) healthy(ctx context.Context) (bool, error) {
	return s.ask(ctx, func(c container.InspectResponse) bool {
		if cond, text := judge(c, c.RestartCount, 0); cond != well {
			s.req.Logf("%s %s", strings.TrimPrefix(c.Name, "/"), text)
			return false
		}
		if c.RestartCount == 0 || !c.State.Running {
			return true
		}
		started, err := time.Parse(time.RFC3339Nano, c.State.StartedAt)
		if err == nil && time.Since(started) < s.set.window {
			s.req.Logf("%s has just restarted", strings.TrimPrefix(c.Name, "/"))
			return false
		}
		return true
	})
}

// ask holds all the application's containers against good, and the services
// of its manifests, where they are at hand, against the containers. Something
// must be running: a service that was stopped and ended well looks like one
// that did its one job.
func (s *session) ask(ctx context.Context, good func(container.InspectResponse) bool) (bool, error) {
	list, err := s.ours(ctx)
	if err != nil {
		return false, err
	}
	if len(list) == 0 {
		s.req.Logf("application %s has no containers", s.req.App)
		return false, nil
	}
	count := map[string]int{}
	running := false
	for _, c := range list {
		full, err := s.engine.Client().ContainerInspect(ctx, c.ID)
		if docker.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("inspect container %s: %w", name(c), err)
		}
		if !good(full) {
			return false, nil
		}
		running = running || full.State.Running
		count[c.Labels[labelService]]++
	}
	if !running {
		s.req.Logf("nothing of application %s is running", s.req.App)
		return false, nil
	}
	dir := list[0].Labels[labelDir]
	c, err := s.findCompose(ctx)
	if err != nil {
		return true, ctx.Err() // the containers there are are all that can be known
	}
	p, err := s.readProject(ctx, c, dir, list[0].Labels[labelProject])
	if err != nil {
		return true, ctx.Err()
	}
	for _, svc := range p.model.names() {
		if count[svc] < p.model.Services[svc].containers() {
			s.req.Logf("service %s has %d of %d containers", svc, count[svc], p.model.Services[svc].containers())
			return false, nil
		}
	}
	return true, nil
}
