package compose

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
	"github.com/mender-app/mender-app/submodules/servicelog"
)

// Status implements submodules.Reporter.
func (s *session) Status(ctx context.Context, _ submodules.Request) (submodules.Status, error) {
	v, err := s.look(ctx)
	if err != nil {
		return submodules.Status{}, err
	}
	out := submodules.Status{Alive: v.wrong(s.dead) == "", Healthy: v.wrong(s.sick) == ""}
	for _, c := range v.containers {
		out.Services = append(out.Services, s.service(ctx, c, v.judge(s.sick, c)))
	}
	for _, svc := range v.services.names() {
		if m := v.services.Services[svc]; m.containers() == 0 && !m.off && !v.has(svc) {
			out.Services = append(out.Services, submodules.Service{Name: svc, Health: submodules.Off, Image: m.Image})
		}
		if text := v.missing(svc); text != "" {
			out.Services = append(out.Services, submodules.Service{Name: svc, Health: submodules.Down, Image: v.services.Services[svc].Image, Failure: text})
		}
	}
	slices.SortFunc(out.Services, func(a, b submodules.Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Instance, b.Instance))
	})
	if len(v.containers) == 0 {
		out.Data, err = s.left(ctx)
	}
	return out, err
}

// service describes a container. failure is what is wrong with it; "" for nothing.
func (s *session) service(ctx context.Context, c container.InspectResponse, failure string) submodules.Service {
	out := submodules.Service{Name: serviceOf(c), Instance: strings.TrimPrefix(c.Name, "/"), Restarts: c.RestartCount}
	if c.Config != nil {
		out.Image = c.Config.Image
	}
	st := c.State
	if st == nil {
		out.Health, out.Failure = submodules.Down, "is in no state"
		return out
	}
	out.Since = docker.Time(st.FinishedAt)
	if st.Running && !st.Restarting {
		out.Since = docker.Time(st.StartedAt)
	}
	out.Failure = failure
	switch {
	case out.Failure == "" && st.Running:
		out.Health = submodules.Healthy
	case out.Failure == "":
		out.Health = submodules.Finished
	case !st.Running || st.Restarting:
		out.Health = submodules.Down
	case strings.HasPrefix(out.Failure, notHealthyYet):
		out.Health = submodules.Starting
	default:
		out.Health = submodules.Unhealthy
	}
	s.addFailure(ctx, &out, c)
	return out
}

// addFailure adds when a container failed, and what it said last before. For one
// that is well it adds what was wrong with it the last time: the engine knows the
// end before the last restart, and its last few health checks.
func (s *session) addFailure(ctx context.Context, out *submodules.Service, c container.InspectResponse) {
	ended := docker.Time(c.State.FinishedAt)
	text, at := lastFailedCheck(c.State.Health)
	switch {
	case out.Health == submodules.Finished || out.Health == submodules.Starting && text == "":
		return
	case out.Health == submodules.Down:
		out.Failed = ended
	case text != "" && !at.Before(ended):
		out.Failure, out.Failed = cmp.Or(out.Failure, text), at
	case c.RestartCount > 0:
		out.Failure, out.Failed = cmp.Or(out.Failure, fmt.Sprintf("ended and was restarted (%s)", metered.Count(c.RestartCount, "time"))), ended
	}
	if out.Failure != "" {
		out.Said = s.saidUntil(ctx, c.ID, out.Failed)
	}
}

// lastFailedCheck is the last failure among the health checks that the engine
// remembers, and when it was.
func lastFailedCheck(h *container.Health) (text string, at time.Time) {
	if h == nil {
		return "", at
	}
	for _, check := range slices.Backward(h.Log) {
		if check.ExitCode != 0 {
			return fmt.Sprintf("a check failed with %d: %s", check.ExitCode, clip.Line(check.Output, maxSaid)), check.End
		}
	}
	return "", at
}

// saidUntil is the last line of a container's output until a time, or at all if the
// time is not known.
func (s *session) saidUntil(ctx context.Context, id string, until time.Time) string {
	said := ""
	err := servicelog.Read(ctx, s.openLog, id, servicelog.Options{Tail: int(min(s.set.logLines, submodules.MaxLogLines))}, func(l servicelog.Line) {
		if text := clip.Line(l.Text, maxSaid); text != "" && (until.IsZero() || !l.At.After(until)) {
			said = text
		}
	})
	if err != nil {
		s.req.Logf("no log of %s: %v", id, err)
	}
	return said
}
