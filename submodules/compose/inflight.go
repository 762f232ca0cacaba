package compose

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Compose makes containers side by side, and gives up when the engine refuses one. The engine
// goes on with the others. It lists a container only when it is whole, so a clean-up that
// lists containers at once misses those, and they stay with the images that they use. But an
// engine holds the name of a container from the beginning: whoever asks for the same name
// is told that it is in use.

// A call that is killed together with Compose cannot wait. So it writes down the names before,
// and the next call waits for them: then it lists all that there is.

// makingName is the file for that, beside the manifests, as long as `docker compose up` runs.
const makingName = "making.json"

// making is the file.
type making struct {
	Project string   `json:"project"`
	Names   []string `json:"names"` // of the containers that the release may have
}

// settleTime bounds the wait for an engine that is still making containers.
const settleTime = time.Minute

// asked has the names of the containers that Compose asked the engine for, and has not heard
// of since. The value says whether Compose makes a container again, under a name of its
// own until the old one is gone.
type asked map[string]bool

var makingStep = regexp.MustCompile(`^Container (\S+)\s+(Creating|Created|Recreate|Recreated)$`)

// note takes a line that Compose said.
func (a asked) note(line string) {
	m := makingStep.FindStringSubmatch(line)
	if m == nil {
		return
	}
	switch m[2] {
	case "Creating":
		a[m[1]] = false
	case "Recreate":
		a[m[1]] = true
	default:
		delete(a, m[1])
	}
}

// settle waits until the engine has made what Compose asked it for and no longer waits for,
// or has given it up. image is one that the engine has.
func (s *session) settle(ctx context.Context, project, image string, names asked) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, called := range slices.Sorted(maps.Keys(names)) {
		for told := false; ; told = true {
			done, err := s.isMade(ctx, project, image, called, names[called])
			if err != nil {
				s.req.Logf("whether the engine still makes container %s is not known: %v", called, err)
				return
			}
			if done {
				break
			}
			if !told {
				s.req.Logf("waiting for the engine, which still makes container %s", called)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

// isMade reports whether the engine is done with a container: it has it, or its name is
// free. again says that Compose makes it while an old one has the name.
func (s *session) isMade(ctx context.Context, project, image, called string, again bool) (bool, error) {
	cli := s.engine.Client()
	if again {
		old, err := cli.ContainerInspect(ctx, called)
		if docker.IsNotFound(err) {
			return true, nil // Compose removes the old one when it has the new one
		}
		if err != nil {
			return false, err
		}
		called = old.ID[:min(12, len(old.ID))] + "_" + called
	}
	if _, err := cli.ContainerInspect(ctx, called); !docker.IsNotFound(err) {
		return err == nil, err
	}
	// Should this call end before the removal, the next one knows by the labels whose it is.
	probe, err := cli.ContainerCreate(ctx, &container.Config{Image: image, Cmd: []string{"none"}, Labels: map[string]string{
		labelApp: s.req.App, labelProject: project, labelService: called,
	}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, called)
	if err != nil && (docker.IsConflict(err) || strings.Contains(err.Error(), nameTaken)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = cli.ContainerRemove(ctx, probe.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	if docker.IsNotFound(err) {
		err = nil
	}
	return true, err
}

// settleUp waits for what a failed `docker compose up` has left the engine to make.
func (s *session) settleUp(ctx context.Context, pl *plan) {
	image := ""
	for _, svc := range pl.model.names() {
		image = pl.model.Services[svc].Image
	}
	for _, p := range pl.pins {
		image = p.img.ID
	}
	s.settle(ctx, pl.name, image, pl.asked)
	clear(pl.asked)
}

// noteMaking writes down which containers `docker compose up` may make, durably. The function
// that it returns removes the file. up goes on without it.
func (s *session) noteMaking(pl *plan) (ended func()) {
	base := appDirectory(s.req.App, pl.dir)
	if base == "" {
		return func() {}
	}
	note := making{Project: pl.name}
	for _, name := range pl.model.names() {
		note.Names = append(note.Names, pl.model.Services[name].containerNames(pl.name, name)...)
	}
	path := filepath.Join(base, makingName)
	if err := writeNote(path, note); err != nil {
		s.req.Logf("warning: what Compose makes is not written down: %v", err)
		return func() {}
	}
	return func() {
		if err := durable.Remove(path); err != nil {
			s.req.Logf("warning: %v", err) // the next call asks the engine in vain
		}
	}
}

// settleKilled waits for what an earlier call, which was killed, has left the engine to make.
func (s *session) settleKilled(ctx context.Context) {
	dir, err := filepath.Abs(s.req.Dir)
	base := appDirectory(s.req.App, dir)
	if s.req.Dir == "" || err != nil || base == "" {
		return
	}
	path := filepath.Join(base, makingName)
	if _, err := os.Lstat(path); err != nil {
		return
	}
	var note making
	if ok, _ := readNote(path, &note); ok {
		images, err := s.engine.Own(ctx, s.req.App)
		if err != nil {
			s.req.Logf("whether the engine still makes containers is not known: %v", err)
			return
		}
		if len(images) > 0 {
			for _, again := range []bool{false, true} {
				names := asked{}
				for _, called := range note.Names {
					names[called] = again
				}
				s.settle(ctx, note.Project, images[0].ID, names)
			}
		}
	}
	if err := durable.Remove(path); err != nil {
		s.req.Logf("warning: %v", err)
	}
}

// settleFirst waits for what a first release that failed has left the engine to make, also
// where somebody ended Compose.
func (s *session) settleFirst(ctx context.Context, p *project, images []docker.Image) {
	if p == nil || len(images) == 0 {
		return
	}
	names := asked{}
	for name, svc := range p.model.Services {
		for _, called := range svc.containerNames(p.name, name) {
			names[called] = false
		}
	}
	s.settle(ctx, p.name, images[0].ID, names)
}
