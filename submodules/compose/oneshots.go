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

	"github.com/mender-app/mender-app/store/durable"
)

// A job is a service that ends by itself. `docker compose up` starts it again each time.
// Here it runs again only if its container is made anew.
//
// A container that has ended with 0 need not have been a job: the engine stops a service
// so, too. It was one if another service waits for its end, or if it was seen to end while
// the release became healthy. The second is kept in a file, because the engine does not
// tell how a container came to its end.

// endedName is a file in the application's directory of the store: the IDs of containers
// that were seen to end by themselves, one a line.
const endedName = "ended"

// maxEnded bounds that file, in bytes.
const maxEnded = 256 << 10

// endedFile is the path of that file, "" if the manifests in dir are not in mender-app's
// store.
func endedFile(app, dir string) string {
	fi, err := os.Lstat(dir)
	if err != nil || fi.Mode()&fs.ModeSymlink == 0 || !ownDirectory(app, dir) {
		return ""
	}
	return filepath.Join(filepath.Dir(dir), endedName)
}

// readEnded returns the IDs in the file. Without the file, jobs that nobody waits for run
// again, as with Compose.
func readEnded(path string) (ids []string) {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxEnded {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// recordEnded keeps which containers of a release that just became healthy have ended by
// themselves: up has started them all, but those that were known to have ended.
func (s *session) recordEnded(ctx context.Context, p *project) error {
	path := endedFile(s.req.App, p.dir)
	if path == "" {
		return nil
	}
	all, err := s.projectContainers(ctx, p)
	if err != nil {
		return err
	}
	ids := ""
	for _, c := range all {
		if endedWell(c) && p.model.mayEnd(serviceOf(c)) {
			ids += c.ID + "\n"
		}
	}
	switch have, err := os.ReadFile(path); {
	case err == nil && string(have) == ids, errors.Is(err, fs.ErrNotExist) && ids == "":
		return nil
	}
	return durable.WriteFile(path, []byte(ids), 0o600)
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
		return pl.model.done(list, readEnded(endedFile(s.req.App, pl.dir))), err
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
