package compose

import (
	"cmp"
	"context"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
)

// The engine's defaults for what a health check does not say (moby's daemon/health.go).
const (
	checkInterval = 30 * time.Second
	checkTimeout  = 30 * time.Second
	checkRetries  = 3
	startInterval = 5 * time.Second // from API 1.44 on, while the start period lasts
)

// maxDeadline bounds the deadline that health checks ask for: a release may say anything.
const maxDeadline = time.Hour

// lastWords is how long before the caller's deadline ours ends: until then it is found what
// failed, and what it said.
const lastWords = 10 * time.Second

// schedule is when the engine checks the health of a service's containers.
type schedule struct {
	interval, timeout, startPeriod, startInterval time.Duration
	retries                                       int
}

// scheduled merges the health check of a service's Compose files with that of its image, as
// the engine does: what the files do not say, the image says. ok is false if there is none.
func scheduled(files *healthcheck, image *container.HealthConfig) (at schedule, ok bool) {
	if files == nil {
		files = &healthcheck{}
	}
	if image == nil {
		image = &container.HealthConfig{}
	}
	switch {
	case files.none(), files.Test == nil && (len(image.Test) == 0 || image.Test[0] == "NONE"):
		return at, false
	}
	or := func(files duration, more ...time.Duration) time.Duration {
		// The bound keeps sums of hostile numbers from overflowing.
		return min(max(cmp.Or(append([]time.Duration{time.Duration(files)}, more...)...), 0), 100*maxDeadline)
	}
	return schedule{
		interval:      or(files.Interval, image.Interval, checkInterval),
		timeout:       or(files.Timeout, image.Timeout, checkTimeout),
		startPeriod:   or(files.StartPeriod, image.StartPeriod),
		startInterval: or(files.StartInterval, image.StartInterval, startInterval),
		retries:       int(min(cmp.Or(files.Retries, uint64(max(image.Retries, 0)), checkRetries), 1000)),
	}, true
}

// verdict is the longest time until the engine calls a container healthy or unhealthy; 0
// without a health check. A failure counts if its check began after the start period, and
// the check before it may have begun just within.
func (at schedule) verdict() time.Duration {
	return min(at.startPeriod+at.timeout+time.Duration(at.retries)*(at.interval+at.timeout), maxDeadline)
}

// first is the time until the first check that can succeed.
func (at schedule) first(startIntervals bool) time.Duration {
	if startIntervals && at.startPeriod > 0 {
		return min(at.interval, at.startInterval)
	}
	return at.interval
}

// timeToHealth is how long it may take until all services are healthy, one after the other
// where one waits for another. A service that others wait for until it ends gets the time
// of a release without health checks.
func (m model) timeToHealth(schedules map[string]schedule) time.Duration {
	known := map[string]time.Duration{} // until the service is started
	var started func(name string) time.Duration
	started = func(name string) time.Duration {
		if d, ok := known[name]; ok {
			return d
		}
		known[name] = 0 // Compose refuses circles
		for dep, how := range m.Services[name].DependsOn {
			if m.Services[dep].off {
				continue
			}
			d := started(dep)
			switch how.Condition {
			case conditionHealthy:
				d += schedules[dep].verdict()
			case conditionCompleted:
				d += defaultDeadline
			}
			known[name] = max(known[name], min(d, maxDeadline))
		}
		return known[name]
	}
	longest := time.Duration(0)
	for name, svc := range m.Services {
		if !svc.off {
			longest = max(longest, started(name)+schedules[name].verdict())
		}
	}
	return min(longest, maxDeadline)
}

// schedule notes when the health of a service is checked that runs from an image.
func (pl *plan) schedule(service string, img image.InspectResponse) {
	var check *container.HealthConfig
	if img.Config != nil {
		check = img.Config.Healthcheck
	}
	if at, ok := scheduled(pl.model.Services[service].Healthcheck, check); ok {
		pl.schedules[service] = at
	}
}

// setDeadline sets the time that the release has to become healthy from its health checks,
// unless HEALTH_DEADLINE says it.
func (s *session) setDeadline(pl *plan) {
	if !s.set.deadlineSaid {
		s.set.deadline = max(defaultDeadline, pl.model.timeToHealth(pl.schedules))
	}
}

// warnLate warns of services whose first check comes after the release has to be healthy.
func (s *session) warnLate(ctx context.Context, pl *plan, limit time.Duration) {
	if s.engine.Podman(ctx) {
		return // it checks at once
	}
	who := "HEALTH_DEADLINE in " + confName
	if limit < s.set.deadline {
		who = "the caller (rollout_timeout in mender-app.conf)"
	}
	startIntervals := s.engine.Client().ClientVersion() >= "1.44"
	for _, name := range pl.model.names() {
		at, ok := pl.schedules[name]
		if first := at.first(startIntervals); ok && !pl.model.Services[name].off && first >= limit {
			s.req.Logf("warning: service %s is checked for the first time %v after its start, and %s gives the release %v to become healthy",
				name, first, who, limit.Round(time.Second))
		}
	}
}

// rest is d, or what is left of the caller's time if that is shorter.
func (s *session) rest(ctx context.Context, d time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(d, max(time.Until(end)-lastWords, 0))
	}
	return d
}
