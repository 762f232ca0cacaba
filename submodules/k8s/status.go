package k8s

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// Status implements submodules.Reporter. A service is a workload, and an instance is one
// of its pods.
func (s *session) Status(ctx context.Context, _ submodules.Request) (submodules.Status, error) {
	st, err := s.inspect(ctx, s.req.App)
	if err != nil {
		return submodules.Status{}, err
	}
	out := submodules.Status{Alive: st.alive, Healthy: st.healthy}
	for _, w := range st.workloads {
		missing := ""
		switch {
		case w.object == nil:
			missing = "is gone"
		case w.stopped:
			missing = "is stopped"
		case int64(len(w.pods)) < w.wanted:
			missing = fmt.Sprintf("has %d of %s", len(w.pods), metered.Count(int(w.wanted), "pod"))
		}
		if missing != "" {
			out.Services = append(out.Services, submodules.Service{Name: w.service(), Health: submodules.Down, Failure: missing})
		}
		for i := range w.pods {
			out.Services = append(out.Services, s.podStatus(ctx, w, &w.pods[i]))
		}
	}
	slices.SortFunc(out.Services, func(a, b submodules.Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Instance, b.Instance))
	})
	return out, nil
}

// service is the name of a workload as kubectl takes it, such as deployment/web.
func (w *seen) service() string { return marks.ServiceName(w.id.Kind, w.id.Name) }

// podStatus describes one pod.
func (s *session) podStatus(ctx context.Context, w seen, p *pod) submodules.Service {
	out := submodules.Service{Name: w.service(), Instance: p.Metadata.Name, Health: submodules.Healthy, Since: p.Metadata.CreationTimestamp}
	var images []string
	for _, c := range p.Spec.Containers {
		images = append(images, c.Image)
	}
	out.Image = clip.Line(strings.Join(images, ", "), maxSaid)
	running := 0
	var failed containerStatus // the container that ended last
	var ended time.Time
	for _, c := range p.Status.Containers {
		out.Restarts += int(c.RestartCount)
		if r := c.State.Running; r != nil {
			running++
			out.Since = later(out.Since, r.StartedAt)
		}
		for _, t := range []*terminated{c.State.Terminated, c.LastState.Terminated} {
			if t != nil && !t.FinishedAt.Before(ended) {
				failed, ended = c, t.FinishedAt
			}
		}
	}
	ready, _, notReady := p.condition("Ready")
	_, why, unscheduled := p.condition("PodScheduled")
	switch trouble := s.hopeless(w.waiting, p); {
	case trouble != nil:
		out.Health, out.Failure = submodules.Unhealthy, trouble.text
	case p.Status.Phase == "Succeeded":
		out.Health, out.Since = submodules.Finished, ended
	case p.Status.Phase == "Failed":
		out.Health, out.Since = submodules.Down, ended
		out.Failure = cmp.Or(p.Status.Message, p.Status.Reason, "has failed")
	case unscheduled != "":
		out.Health, out.Failure = submodules.Down, why+": "+unscheduled
	case !ready:
		out.Health, out.Failure = submodules.Starting, cmp.Or(notReady, "is not ready")
	}
	if out.Health == submodules.Unhealthy && running == 0 {
		out.Health = submodules.Down
	}
	if out.Health != submodules.Finished && out.Health != submodules.Starting {
		s.addEnd(ctx, &out, p, failed)
	}
	out.Failure = clip.Line(out.Failure, maxSaid)
	return out
}

// addEnd adds how a pod's container last ended, and its last output before that.
func (s *session) addEnd(ctx context.Context, out *submodules.Service, p *pod, c containerStatus) {
	t, previous := c.State.Terminated, false
	if t == nil {
		t, previous = c.LastState.Terminated, c.State.Running != nil
	}
	if t == nil {
		return
	}
	out.Failed = t.FinishedAt
	if out.Failure == "" {
		out.Failure = fmt.Sprintf("container %s ended with status %d (%s) and was restarted", c.Name, t.ExitCode, t.Reason)
	}
	lines, err := s.c.PodLog(ctx, p.Metadata.Namespace, p.Metadata.Name, c.Name, 1, previous)
	if err != nil {
		s.log("no log of %s: %v", p.Metadata.Name, err)
		return
	}
	out.Said = clip.Line(lines[len(lines)-1], maxSaid)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
