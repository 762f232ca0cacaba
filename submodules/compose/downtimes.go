package compose

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/docker/docker/client"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// This file measures how long services of a project are down while their containers are
// replaced, by the engine's own times.

// downtimeWatch notes what the engine says of containers. The engine forgets when a container
// ended as soon as it is removed, so that has to be noted when it happens.
type downtimeWatch struct {
	begun time.Time
	label string            // that of a container's service
	old   map[string]string // containers that ran when it began, with their services
	stop  context.CancelFunc

	mu      sync.Mutex
	ended   map[string]time.Time // containers, when they ended last
	healthy map[string]time.Time // containers, when their health check succeeded first
	lost    bool                 // the engine went away
}

// maxNoted bounds what is noted.
const maxNoted = 1000

// watchDowntime begins to watch the containers that have a label whose value is their service.
// existing are those that the application has.
func watchDowntime(ctx context.Context, e *client.Client, label string, existing []container.Summary, log func(string)) *downtimeWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &downtimeWatch{
		begun: time.Now(), label: label, stop: cancel,
		old: map[string]string{}, ended: map[string]time.Time{}, healthy: map[string]time.Time{},
	}
	for _, c := range existing {
		if c.State == container.StateRunning {
			w.old[c.ID] = c.Labels[label]
		}
	}
	go func() {
		// Events returns when the engine has answered, which some do at the first event.
		list, errs := e.Events(ctx, events.ListOptions{
			Since:   strconv.FormatInt(w.begun.Add(-time.Second).Unix(), 10),
			Filters: filters.NewArgs(filters.Arg("type", string(events.ContainerEventType)), filters.Arg("label", label)),
		})
		for {
			select {
			case m := <-list:
				w.note(m)
			case err := <-errs:
				if err != nil && ctx.Err() == nil {
					w.mu.Lock()
					w.lost = true
					w.mu.Unlock()
					log("the engine does not tell of its events any more, so downtimes may not be known: " + err.Error())
				}
				return
			}
		}
	}()
	return w
}

// Lost reports whether the engine went away since the watch began. It may be back already.
func (w *downtimeWatch) Lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *downtimeWatch) note(m events.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Unix(0, m.TimeNano).UTC()
	switch m.Action {
	case events.ActionDie:
		if w.old[m.Actor.ID] != "" {
			w.ended[m.Actor.ID] = at
		}
	case events.ActionHealthStatusHealthy:
		if _, known := w.healthy[m.Actor.ID]; !known && len(w.healthy) < maxNoted {
			w.healthy[m.Actor.ID] = at
		}
	}
}

// End ends the watch. now are the application's containers. It tells of the services
// of which none was ready for a time, or is ready since it began; with failed also of
// those of which none is ready now, unless it has done its job.
func (w *downtimeWatch) End(now []container.InspectResponse, failed bool, done func(container.InspectResponse) bool) (list []submodules.Downtime) {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	now = slices.DeleteFunc(now, func(c container.InspectResponse) bool { return c.State == nil || c.Config == nil })
	spans, left := map[string][]submodules.Span{}, map[string]bool{}
	for id, service := range w.old {
		ended, known := w.ended[id]
		if i := slices.IndexFunc(now, func(c container.InspectResponse) bool { return c.ID == id }); i >= 0 && !known {
			if now[i].State.Running {
				continue // ready finds that it was ready before
			}
			ended = docker.Time(now[i].State.FinishedAt)
			known = !ended.IsZero()
		}
		left[service] = left[service] || !known
		spans[service] = append(spans[service], submodules.Span{To: ended})
	}
	for _, c := range now {
		service := c.Config.Labels[w.label]
		left[service] = left[service] || done(c)
		if at := w.ready(c); !at.IsZero() {
			spans[service] = append(spans[service], submodules.Span{From: at})
		}
	}
	maps.DeleteFunc(spans, func(name string, _ []submodules.Span) bool { return left[name] })
	return submodules.Gaps(spans, w.begun, failed)
}

// ready is since when a container is ready; zero if it is not.
func (w *downtimeWatch) ready(c container.InspectResponse) time.Time {
	if !c.State.Running || c.State.Restarting || c.State.Paused {
		return time.Time{}
	}
	started := docker.Time(c.State.StartedAt)
	h := c.State.Health
	if h == nil || h.Status == "" || h.Status == container.NoHealthcheck {
		return started
	}
	if h.Status != container.Healthy {
		return time.Time{}
	}
	if at, noted := w.healthy[c.ID]; noted && at.After(started) {
		return at
	}
	if started.Before(w.begun) {
		return started
	}
	for _, check := range h.Log { // Podman's events do not say it
		if check.ExitCode == 0 && check.End.After(started) {
			return check.End.UTC()
		}
	}
	return started
}
