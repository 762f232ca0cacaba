package compose

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// maxSaid is how much of a program's output goes into an error, in bytes.
const maxSaid = 200

// condition is the state of a container or a service.
type condition int

const (
	well    condition = iota // running and, if it has a health check, healthy; or it did its one job
	pending                  // may become well
	failed                   // will not
)

// judge returns the condition of a container. mayEnd says that its service may end
// by itself (model.mayEnd). restarts is its restart count before we watched it, and
// allowed how many more restarts are tolerated.
func judge(c container.InspectResponse, mayEnd bool, restarts, allowed int) (condition, string) {
	st := c.State
	switch {
	case st == nil:
		return pending, "is in no state"
	case c.RestartCount > restarts+allowed, st.Restarting && allowed == 0:
		return failed, fmt.Sprintf("restarts (exit code %d)", st.ExitCode)
	case st.Restarting:
		return pending, fmt.Sprintf("restarts (exit code %d)", st.ExitCode)
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
		return pending, notHealthyYet + lastCheck(st.Health)
	case st.Status == "exited" || st.Status == "dead":
		if st.ExitCode == 0 && oneShot(c) {
			if mayEnd {
				return well, "is done"
			}
			return failed, "exited with code 0 but should keep running: it has a health check or publishes ports"
		}
		if st.Error != "" { // its exit code is that of the time before
			return failed, "could not be started: " + st.Error
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

const notHealthyYet = "is not healthy yet"

// oneShot reports whether a container's restart policy lets it end.
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
	if last.ExitCode == 0 {
		return ""
	}
	return fmt.Sprintf(": the last check failed with %d: %s", last.ExitCode, clip.Line(last.Output, maxSaid))
}

// bygone is what a container went through before a call, which is not a verdict about the call.
type bygone struct {
	restarts int
	checked  time.Time // when the last health check began
}

func bygoneOf(c container.InspectResponse) bygone {
	b := bygone{restarts: c.RestartCount}
	if c.State != nil && c.State.Health != nil && len(c.State.Health.Log) > 0 {
		b.checked = c.State.Health.Log[len(c.State.Health.Log)-1].Start
	}
	return b
}

const (
	defaultRetries = 3 // of the engine
	keptChecks     = 5 // how many checks the engine remembers
)

// isStale reports whether a container is unhealthy only because of checks before the call;
// before has the containers that were there then. The engine calls each paused container
// unhealthy, and it stays so until its next check.
func isStale(c container.InspectResponse, before map[string]bygone) bool {
	b, was := before[c.ID]
	if !was || !isUnhealthy(c) || c.State.Paused {
		return false
	}
	retries := defaultRetries
	if c.Config != nil && c.Config.Healthcheck != nil && c.Config.Healthcheck.Retries > 0 {
		retries = c.Config.Healthcheck.Retries
	}
	// Not by the times: the clock may have been set back.
	since := 0
	for _, check := range slices.Backward(c.State.Health.Log) {
		if check.Start.Equal(b.checked) {
			break
		}
		since++
	}
	return since < min(retries, keptChecks)
}

func isUnhealthy(c container.InspectResponse) bool {
	return c.State != nil && c.State.Running && c.State.Health != nil && c.State.Health.Status == container.Unhealthy
}

// awaitChecks waits until no container is unhealthy because of old checks alone, or until
// the deadline. It reports whether no container is unhealthy then.
func (s *session) awaitChecks(ctx context.Context, p *project, before map[string]bygone) bool {
	ctx, cancel := context.WithTimeout(ctx, s.rest(ctx, s.set.deadline))
	defer cancel()
	for {
		list, err := s.containers(ctx, labelProject+"="+p.name)
		if err != nil {
			return false
		}
		full, err := s.inspect(ctx, list)
		if err != nil {
			return false
		}
		if !slices.ContainsFunc(full, func(c container.InspectResponse) bool { return isStale(c, before) }) {
			return !slices.ContainsFunc(full, isUnhealthy)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}

// finding is the state of a service that is not well.
type finding struct {
	condition condition
	service   string
	container string // ID, or ""
	text      string
}

// examine looks at all containers of the project and returns the worst state, or
// well if all are well. before has what the containers went through before the call.
func (s *session) examine(ctx context.Context, p *project, before map[string]bygone) (finding, error) {
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
	for _, c := range s.from(p.dir, list) {
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
		cond, text := judge(full, p.model.mayEnd(svc), before[c.ID].restarts, s.restartsAllowed())
		if cond == failed && isStale(full, before) {
			cond, text = pending, "was unhealthy before, and was not checked again often enough"
		}
		worse(finding{cond, svc, c.ID, text})
	}
	for _, svc := range p.model.names() {
		if want := p.model.Services[svc].containers(); count[svc] < want {
			worse(finding{condition: pending, service: svc, text: fmt.Sprintf("has %d of %s", count[svc], metered.Count(want, "container"))})
		}
	}
	return worst, nil
}

// restartsAllowed is how often a container may restart in a call. In a ROLLBACK it is at least
// a few times: no other release could run instead of one that crashed once.
func (s *session) restartsAllowed() int {
	if s.back {
		return max(int(s.set.restarts), restartsBack)
	}
	return int(s.set.restarts)
}

const restartsBack = 3

// watchInterval is how often the engine is asked without an event, because an event
// can be lost with the connection. Tests switch it off.
var watchInterval = 10 * time.Second

// watch returns nil when every service of the project has been well for the
// stability window. It returns an ErrUnhealthy as soon as a service cannot become
// well, or when the deadline has passed. It looks again at each event of the engine.
func (s *session) watch(ctx context.Context, p *project, before map[string]bygone) error {
	limit := s.rest(ctx, s.set.deadline)
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	evCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := s.changes(evCtx, p)
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
				if f.text == notHealthyYet && s.engine.Podman(ctx) {
					f.text += " (no check has run: Podman leaves them to timers of systemd, so run systemd for its user, or disable the health check)"
				}
				return s.unhealthy(ctx, f, fmt.Sprintf(" after %v", limit.Round(time.Second)))
			}
			// All is well, but not for long enough yet.
			deadline.Reset(s.set.window + time.Second)
		case <-stable.C:
			elapsed = calm
		case <-tick.C:
		case <-news:
		}
	}
}

// changes signals each change to the project's containers from about now on.
// Commands that a health check runs in its container are not a change; the result of
// the check is one. If the engine ends the stream, no more signals come, and the
// caller's ticker goes on.
func (s *session) changes(ctx context.Context, p *project) <-chan struct{} {
	all, _ := s.engine.Client().Events(ctx, events.ListOptions{
		// The request is sent in the background: what happens before the engine has
		// it is reported afterwards.
		Since: strconv.FormatInt(time.Now().Add(-time.Second).Unix(), 10),
		Filters: filters.NewArgs(
			filters.Arg("type", "container"), filters.Arg("label", labelProject+"="+p.name)),
	})
	news := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-all:
				if strings.HasPrefix(string(e.Action), "exec_") {
					continue
				}
			}
			select {
			case news <- struct{}{}:
			default: // a look at everything is due already
			}
		}
	}()
	return news
}

// unhealthy logs the last lines of what failed, and makes the error from them.
func (s *session) unhealthy(ctx context.Context, f finding, more string) error {
	return submodules.Mark(fmt.Errorf("service %s %s%s%s", f.service, f.text, more, s.lastWords(ctx, f)), submodules.ErrUnhealthy)
}

// lastWords logs the last lines of what failed, and returns the very last one for
// the error.
func (s *session) lastWords(ctx context.Context, f finding) string {
	if f.container == "" {
		return ""
	}
	words := s.showLogs(ctx, f.container, f.service)
	if words == "" {
		return ""
	}
	return "; it last said: " + clip.Line(words, maxSaid)
}

// Alive implements submodules.Session: it reports whether everything the application should run is running.
func (s *session) Alive(ctx context.Context, _ submodules.Request) (bool, error) {
	return s.ask(ctx, s.dead)
}

// Healthy implements submodules.Session: it reports whether it is alive, healthy, and has not restarted lately.
func (s *session) Healthy(ctx context.Context, _ submodules.Request) (bool, error) {
	return s.ask(ctx, s.sick)
}

// ask looks at the application, and logs why an answer is no.
func (s *session) ask(ctx context.Context, wrong verdict) (bool, error) {
	v, err := s.look(ctx)
	if err != nil {
		return false, s.orGone(ctx, err)
	}
	why := v.wrong(wrong)
	if why != "" {
		s.req.Logf("%s", why)
	}
	return why == "", nil
}

// verdict says what is wrong with a container; "" for nothing. mayEnd says that its
// service may end by itself.
type verdict func(c container.InspectResponse, mayEnd bool) string

// dead is the verdict of ALIVE. The engine says of a paused container that it runs, too.
func (s *session) dead(c container.InspectResponse, mayEnd bool) string {
	if c.State != nil && (c.State.Running && !c.State.Restarting && !c.State.Paused ||
		c.State.Status == "exited" && c.State.ExitCode == 0 && oneShot(c) && mayEnd) {
		return ""
	}
	_, text := judge(c, mayEnd, c.RestartCount, 0)
	return text
}

// sick is the verdict of HEALTHY.
func (s *session) sick(c container.InspectResponse, mayEnd bool) string {
	if cond, text := judge(c, mayEnd, c.RestartCount, 0); cond != well {
		return text
	}
	if c.RestartCount > 0 && c.State.Running && within(c.State.StartedAt, time.Now(), s.set.window) {
		return "has just restarted"
	}
	return ""
}

// within reports whether started, a time as the engine writes it, is less than a
// window ago. A start in the future comes from a clock that was set back and counts
// as long ago: a device without a clock would otherwise wait for decades.
func within(started string, now time.Time, window time.Duration) bool {
	t, err := time.Parse(time.RFC3339Nano, started)
	return err == nil && !t.After(now) && now.Sub(t) < window
}

// sight is what one look at the engine shows of the application.
type sight struct {
	app        string
	containers []container.InspectResponse // sorted by name
	services   model                       // of its manifests; empty if they cannot be read
	stopped    []string                    // IDs of those that ended with 0 and should run
	other      map[string]string           // what is wrong with the images of containers, by ID
}

// look inspects all the application's containers, and reads its manifests.
func (s *session) look(ctx context.Context) (sight, error) {
	v := sight{app: s.req.App}
	list, err := s.ours(ctx)
	if err != nil || len(list) == 0 {
		return v, err
	}
	// Without the manifests, the existing containers are all that is known.
	dir := s.manifestsOf(list)
	if c, err := s.findCompose(ctx); err == nil {
		if p, err := s.readProject(ctx, c, dir, list[0].Labels[labelProject], false); err == nil {
			v.services = p.model
		}
	}
	if err := ctx.Err(); err != nil {
		return v, err
	}
	if v.containers, err = s.inspect(ctx, list); err != nil {
		return v, err
	}
	v.other = map[string]string{}
	for _, c := range v.containers {
		v.other[c.ID] = s.otherImage(ctx, v.services, c)
	}
	return v, s.findStopped(ctx, &v, dir)
}

// inspect inspects containers. One that is gone is left out.
func (s *session) inspect(ctx context.Context, list []container.Summary) (out []container.InspectResponse, err error) {
	for _, c := range list {
		full, err := s.engine.Client().ContainerInspect(ctx, c.ID)
		if docker.IsNotFound(err) {
			continue
		}
		if err != nil {
			return out, fmt.Errorf("inspect container %s: %w", name(c), err)
		}
		out = append(out, full)
	}
	return out, nil
}

// serviceOf is the service that a container belongs to.
func serviceOf(c container.InspectResponse) string {
	if c.Config == nil {
		return ""
	}
	return c.Config.Labels[labelService]
}

// wrong applies a verdict to all the application's containers, and compares their
// number with the manifests. Something must be running: a service that was stopped
// and exited with 0 looks like a one-time job that is done.
func (v sight) wrong(verdict verdict) string {
	if len(v.containers) == 0 {
		return fmt.Sprintf("application %s has no containers", v.app)
	}
	running := false
	for _, c := range v.containers {
		if text := v.judge(verdict, c); text != "" {
			return strings.TrimPrefix(c.Name, "/") + " " + text
		}
		running = running || c.State.Running
	}
	if !running {
		return fmt.Sprintf("nothing of application %s is running", v.app)
	}
	for _, svc := range v.services.names() {
		if text := v.missing(svc); text != "" {
			return "service " + svc + " " + text
		}
	}
	return ""
}

// judge says what is wrong with one of the containers; "" for nothing.
func (v sight) judge(verdict verdict, c container.InspectResponse) string {
	if slices.Contains(v.stopped, c.ID) {
		return "ended with code 0 before the engine was started, and may not have been done"
	}
	return cmp.Or(verdict(c, v.services.mayEnd(serviceOf(c))), v.other[c.ID])
}

// has reports whether a service has a container.
func (v sight) has(service string) bool {
	return slices.ContainsFunc(v.containers, func(c container.InspectResponse) bool { return serviceOf(c) == service })
}

// missing says how many containers a service lacks; "" if it has all.
func (v sight) missing(service string) string {
	count := 0
	for _, c := range v.containers {
		if serviceOf(c) == service {
			count++
		}
	}
	if want := v.services.Services[service].containers(); count < want {
		return fmt.Sprintf("has %d of %s", count, metered.Count(want, "container"))
	}
	return ""
}
