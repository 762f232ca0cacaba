package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// A job is a service that ends by itself. `docker compose up` starts it again each time.
// Here it runs again only if its container is made anew.
//
// A container that has ended with 0 need not have been a job: the engine stops a service
// so, too, when the machine shuts down. It was one if another service waits for its end, or
// if it was seen to end while the release became healthy. The second is kept in a file,
// because the engine does not tell how a container came to its end. As long as the engine
// runs that ran then, others that end with 0 are taken for jobs as well. After it was
// restarted, they count as stopped.

// endedName is a file in the application's directory of the store: the run of the engine
// in which it was written, after runPrefix, and the IDs of containers that were seen to end
// by themselves, one a line.
const (
	endedName = "ended"
	runPrefix = "run="
)

// maxEnded bounds that file, in bytes.
const maxEnded = 256 << 10

// endings is what that file says.
type endings struct {
	run string // "" if it is not known
	ids []string
}

// endedFile is the path of that file, "" if the manifests in dir are not in mender-app's
// store.
func endedFile(app, dir string) string {
	fi, err := os.Lstat(dir)
	if err != nil || fi.Mode()&fs.ModeSymlink == 0 || !ownDirectory(app, dir) {
		return ""
	}
	return filepath.Join(filepath.Dir(dir), endedName)
}

// readEnded returns what the file says. Without the file, jobs that nobody waits for run
// again, as with Compose.
func readEnded(path string) (e endings) {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxEnded {
		return e
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return e
	}
	for _, word := range strings.Fields(string(text)) {
		if run, ok := strings.CutPrefix(word, runPrefix); ok {
			e.run = run
		} else {
			e.ids = append(e.ids, word)
		}
	}
	return e
}

// recordEnded keeps which containers of a release that just became healthy have ended by
// themselves: up has started them all, but those that were known to have ended. A project
// whose services cannot end unnoticed needs no file.
func (s *session) recordEnded(ctx context.Context, p *project) error {
	path := endedFile(s.req.App, p.dir)
	if path == "" {
		return nil
	}
	all, err := s.projectContainers(ctx, p)
	if err != nil {
		return err
	}
	ids, needed := "", false
	for _, c := range all {
		if name := serviceOf(c); oneShot(c) && p.model.mayEnd(name) {
			needed = needed || !p.model.awaited(name)
			if endedWell(c) {
				ids += c.ID + "\n"
				needed = true
			}
		}
	}
	have, readErr := os.ReadFile(path)
	if errors.Is(readErr, fs.ErrNotExist) && !needed {
		return nil
	}
	run, err := s.engineRun(ctx)
	if err != nil {
		return err
	}
	text := runPrefix + run + "\n" + ids
	if readErr == nil && string(have) == text {
		return nil
	}
	return durable.WriteFile(path, []byte(text), 0o600)
}

// engineRun names the time from one start of the engine to the next. No clock is asked,
// because devices may have none. The engine makes its default bridge anew when it starts,
// unless containers have run on without it; with Podman, or without that bridge, only a
// restart of this machine is noticed.
func (s *session) engineRun(ctx context.Context) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	bridge, err := s.engine.Client().NetworkInspect(ctx, network.NetworkBridge, network.InspectOptions{})
	if err != nil && !docker.IsNotFound(err) {
		return "", fmt.Errorf("inspect the engine's bridge: %w", err)
	}
	return strings.TrimSpace(string(boot)) + "/" + bridge.ID, nil
}

// findStopped adds to a sight which containers ended with 0 before the engine was started,
// although they may have been stopped: neither does another service wait for their end, nor
// were they seen to end by themselves.
func (s *session) findStopped(ctx context.Context, v *sight, dir string) error {
	var which []string
	ended := readEnded(endedFile(s.req.App, dir))
	for _, c := range v.containers {
		name := serviceOf(c)
		_, known := v.services.Services[name]
		if known && endedWell(c) && v.services.mayEnd(name) && !v.services.awaited(name) && !slices.Contains(ended.ids, c.ID) {
			which = append(which, c.ID)
		}
	}
	if ended.run == "" || len(which) == 0 {
		return nil
	}
	run, err := s.engineRun(ctx)
	if err == nil && run != ended.run {
		v.stopped = which
	}
	return err
}

// endedWell reports whether a container has ended with 0, and may.
func endedWell(c container.InspectResponse) bool {
	return c.State != nil && c.State.Status == container.StateExited && c.State.ExitCode == 0 && oneShot(c)
}

// projectContainers inspects the containers of a project.
func (s *session) projectContainers(ctx context.Context, p *project) ([]container.InspectResponse, error) {
	list, err := s.containers(ctx, labelProject+"="+p.name)
	if err != nil {
		return nil, err
	}
	return s.inspect(ctx, s.ofProject(p, list))
}

// ofProject returns those of the containers that are the project's, and run from its
// directory or were taken over.
func (s *session) ofProject(p *project, list []container.Summary) []container.Summary {
	list = slices.DeleteFunc(slices.Clone(list), func(c container.Summary) bool { return c.Labels[labelProject] != p.name })
	return s.from(p.dir, list)
}

// done returns the jobs among the services whose containers, as many as the service has,
// have all ended with 0. ended are the IDs of containers that were seen to end.
func (m model) done(list []container.InspectResponse, ended []string) map[string]bool {
	count, open := map[string]int{}, map[string]bool{}
	for _, c := range list {
		name := serviceOf(c)
		count[name]++
		if !endedWell(c) || !m.awaited(name) && !slices.Contains(ended, c.ID) {
			open[name] = true
		}
	}
	done := map[string]bool{}
	for name, svc := range m.Services {
		if want := svc.containers(); want > 0 && count[name] == want && !open[name] && m.mayEnd(name) {
			done[name] = true
		}
	}
	return done
}

// startAll runs `docker compose up`, without the jobs that are done and unchanged.
//
// Compose starts whatever it is given, and what that depends on. Without a dependency, it
// takes the service for another one until 2.26 and makes its container anew. So a first
// call makes all containers, of the whole project, and starts none: jobs that are still
// done then are unchanged. A second one starts the others, and makes none.
func (s *session) startAll(ctx context.Context, pl *plan, said *tail) error {
	finished := func() (map[string]bool, error) {
		list, err := s.projectContainers(ctx, pl.project)
		return pl.model.done(list, readEnded(endedFile(s.req.App, pl.dir)).ids), err
	}
	done, err := finished()
	if err != nil {
		return err
	}
	if len(done) == 0 {
		return s.compose(ctx, pl, said, "--detach")
	}
	if err := s.compose(ctx, pl, said, "--no-start"); err != nil {
		return err
	}
	if done, err = finished(); err != nil {
		return err
	}
	args := []string{"--detach", "--no-deps", "--no-recreate"}
	for _, name := range pl.model.names() {
		switch {
		case done[name]:
			s.req.Logf("service %s is done and did not change: it does not run again", name)
		case !pl.model.Services[name].off:
			args = append(args, name)
		}
	}
	if len(args) == 3 {
		return nil
	}
	waits, err := pl.model.waits(done, s.req.TempDir)
	if err != nil {
		return err
	}
	started := *pl
	started.waits = waits
	return s.compose(ctx, &started, said, args...)
}

// waits writes a file for Compose that makes services wait for what the jobs that they wait
// for have waited for: without those jobs, it would no longer be started before.
func (m model) waits(done map[string]bool, tempDir string) (string, error) {
	type waiting struct {
		DependsOn map[string]dependency `json:"depends_on"`
	}
	services := map[string]waiting{}
	for name, svc := range m.Services {
		inherited := map[string]dependency{}
		var inherit func(of string)
		inherit = func(of string) {
			for dep, how := range m.Services[of].DependsOn {
				_, known := m.Services[dep]
				switch _, said := svc.DependsOn[dep]; {
				case done[dep]:
					inherit(dep)
				case known && !said && !m.Services[dep].off:
					inherited[dep] = how
				}
			}
		}
		if !done[name] {
			for dep := range svc.DependsOn {
				if done[dep] {
					inherit(dep)
				}
			}
		}
		if len(inherited) > 0 {
			services[name] = waiting{inherited}
		}
	}
	if len(services) == 0 {
		return "", nil
	}
	text, err := json.Marshal(map[string]any{"services": services})
	if err != nil {
		return "", fmt.Errorf("waits of services: %w", err)
	}
	path := filepath.Join(tempDir, "mender-app.waits.json")
	return path, os.WriteFile(path, text, 0o600)
}
