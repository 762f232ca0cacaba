package compose

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
	"github.com/mender-app/mender-app/submodules/servicelog"
)

// The labels by which Compose marks what it makes.
const (
	labelProject = "com.docker.compose.project"
	labelService = "com.docker.compose.service"
	labelDir     = "com.docker.compose.project.working_dir"
	labelHash    = "com.docker.compose.config-hash"
	labelOneoff  = "com.docker.compose.oneoff"
	labelNetwork = "com.docker.compose.network"
	labelVolume  = "com.docker.compose.volume"
)

// lostLayer is what Podman says, and with it the container's ID, when it can list no
// container because it cannot read the layer of one.
const lostLayer = "getting graph driver info"

// containers lists the containers with the label, or all with "", in any state: `docker
// compose ps` does not show a crashed one.
func (s *session) containers(ctx context.Context, label string) ([]container.Summary, error) {
	f := filters.NewArgs()
	if label != "" {
		f.Add("label", label)
	}
	list, err := s.engine.Client().ContainerList(ctx, container.ListOptions{All: true, Filters: f})
	if err != nil && strings.Contains(err.Error(), lostLayer) {
		return nil, fmt.Errorf("list containers: %w: Podman lost a part of this container in a power cut: remove it with podman rm --force, then run mender-app resume", err)
	}
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	sort.Slice(list, func(i, j int) bool { return name(list[i]) < name(list[j]) })
	return list, nil
}

func name(c container.Summary) string {
	if len(c.Names) == 0 {
		return c.ID
	}
	return strings.TrimPrefix(c.Names[0], "/")
}

// ours returns the application's containers, wherever its manifests are: those that
// mender-app marked, and those that run from <app>/manifests, where the shell
// reference had them too, and those that mender-container-modules started.
func (s *session) ours(ctx context.Context) ([]container.Summary, error) {
	all, err := s.containers(ctx, labelProject)
	return s.owned(all), err
}

func (s *session) owned(all []container.Summary) (ours []container.Summary) {
	for _, c := range all {
		if oneoff(c) {
			continue
		}
		if app, ok := s.owner(c); ok && app == s.req.App {
			ours = append(ours, c)
		}
	}
	return ours
}

// oneoff reports whether a container is from `docker compose run`: somebody started
// it by hand, and it belongs to no service.
func oneoff(c container.Summary) bool { return strings.EqualFold(c.Labels[labelOneoff], "true") }

// from returns those of the containers that are the application's, wherever it runs from,
// and those that run from dir and are nobody's: somebody called Compose there. So a release
// replaces one from another directory, and a service that no release changes keeps its
// container.
func (s *session) from(dir string, list []container.Summary) []container.Summary {
	var out []container.Summary
	for _, c := range list {
		app, ok := s.owner(c)
		if !oneoff(c) && (ok && app == s.req.App || !ok && sameDir(c.Labels[labelDir], dir)) {
			out = append(out, c)
		}
	}
	return out
}

// takenOver reports whether mender-container-modules started a container of the
// application.
func (s *session) takenOver(c container.Summary) bool {
	if !s.set.modules.Ran(c.Labels[labelDir]) {
		return false
	}
	app, ok := s.owner(c)
	return ok && app == s.req.App
}

// manifestsOf returns the directory with the manifests of the application's
// containers: that of the newest one, because a release from another directory keeps the
// containers of services that it does not change. Those that mender-container-modules
// started may name one that is gone.
func (s *session) manifestsOf(list []container.Summary) string {
	dir, made := "", int64(0)
	for _, c := range list {
		if !s.takenOver(c) && (dir == "" || c.Created > made) {
			dir, made = c.Labels[labelDir], c.Created
		}
	}
	if dir != "" {
		return dir
	}
	if _, err := os.Stat(s.req.Dir); s.req.Dir != "" && err == nil {
		return s.req.Dir
	}
	if p, ok := s.set.modules.Project(); ok && p.Name == s.req.App {
		return p.Manifests
	}
	return list[0].Labels[labelDir]
}

// sameDir compares directories as Compose recorded them. Links above the
// manifests (/data → /mnt/data) may have been followed or not.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	if filepath.Base(a) != filepath.Base(b) {
		return false
	}
	ra, err := filepath.EvalSymlinks(filepath.Dir(a))
	if err != nil {
		return false
	}
	rb, err := filepath.EvalSymlinks(filepath.Dir(b))
	return err == nil && ra == rb
}

// remove stops and removes containers. Their volumes stay, because they are data.
func (s *session) remove(ctx context.Context, list []container.Summary) error {
	return inParallel(list, func(c container.Summary) error {
		s.req.Logf("removing container %s", name(c))
		if err := s.stop(ctx, c); err != nil {
			return err
		}
		err := s.engine.Client().ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true})
		if err != nil && !docker.IsNotFound(err) && !docker.IsConflict(err) {
			return fmt.Errorf("remove container %s: %w", name(c), err)
		}
		return nil
	})
}

// stop stops a container. One that is gone is not an error.
func (s *session) stop(ctx context.Context, c container.Summary) error {
	if err := s.engine.Client().ContainerStop(ctx, c.ID, container.StopOptions{}); err != nil && !docker.IsNotFound(err) {
		return fmt.Errorf("stop container %s: %w", name(c), err)
	}
	return nil
}

// stops is how many containers are stopped at a time: a container that ignores TERM
// takes ten seconds, and each takes a connection to the engine.
const stops = 16

// inParallel calls f for each container, and returns the first error in their order.
func inParallel(list []container.Summary, f func(container.Summary) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(list))
	slots := make(chan struct{}, stops)
	for i, c := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(c)
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// removeNetworks removes the project's networks that nothing is connected to. A
// network in use stays; that is not an error.
func (s *session) removeNetworks(ctx context.Context, project string) error {
	cli := s.engine.Client()
	nets, err := cli.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelProject+"="+project))})
	if err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, n := range nets {
		if err := cli.NetworkRemove(ctx, n.ID); err != nil && !docker.IsNotFound(err) {
			s.req.Logf("network %s stays: %v", n.Name, err)
		}
	}
	return nil
}

// showLogs logs the last lines of a container's log, and returns the very last one.
func (s *session) showLogs(ctx context.Context, id, service string) (last string) {
	w := &tail{log: func(line string) { s.req.Logf("%s | %s", service, line) }}
	err := servicelog.Read(ctx, s.openLog, id, servicelog.Options{Tail: int(min(s.set.logLines, submodules.MaxLogLines))}, func(l servicelog.Line) {
		_, _ = io.WriteString(w, l.Text+"\n")
	})
	if err != nil {
		s.req.Logf("%s | (no log: %v)", service, err)
	}
	return w.final()
}
