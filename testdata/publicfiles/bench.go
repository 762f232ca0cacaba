package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/mender-app/mender-app/testdata/bed"
)

// bench is a device on which one project after the other lives.
type bench struct {
	*bed.Device
	dir      string
	programs string
	standin  []byte
	engine   *client.Client
	names    bool
}

func newBench(names bool) (b *bench, err error) {
	b = &bench{names: names}
	if b.programs, err = bed.Programs(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "mender-app-public-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.standin, err = buildStandin(); err != nil {
		return b, err
	}
	if b.Device, err = bed.New(filepath.Join(b.dir, "device")); err != nil {
		return b, err
	}
	if err := b.Install(b.programs); err != nil {
		return b, err
	}
	if err := b.WithoutMender(); err != nil {
		return b, err
	}
	if err := b.StartEngine(); err != nil {
		return b, err
	}
	b.engine, err = b.Docker()
	return b, err
}

// buildStandin builds the program of stand-in images.
func buildStandin() ([]byte, error) {
	dir, err := os.MkdirTemp("", "mender-app-public-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "standin")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, "./testdata/publicfiles/standin")
	build.Dir, build.Env = bed.Repository(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the stand-in: %w: %s", err, out)
	}
	return os.ReadFile(file)
}

func (b *bench) close() (err error) {
	if b.engine != nil {
		err = b.engine.Close()
	}
	if b.Device != nil {
		err = errors.Join(err, b.Kill())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// said runs a command on the device and returns what it says if it fails.
func (b *bench) said(name string, args ...string) (string, error) {
	r, err := b.Run(name, args...)
	if err != nil || r.Code == 0 {
		return "", err
	}
	return lastLines(r.Output()), nil
}

// lastLines is the end of what a command says.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " ")
}

// project takes a project through its life.
func (b *bench) project(app, from string) (r row, err error) {
	dir := b.Share(app)
	defer func() {
		err = errors.Join(err, os.RemoveAll(dir), b.clean())
	}()
	plain, own := filepath.Join(dir, "plain", app), filepath.Join(dir, "own", app)
	for _, to := range []string{plain, own} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			r.plain = "it cannot be copied: " + err.Error()
			return r, nil
		}
	}
	m, text, err := b.read(plain)
	if err != nil {
		return r, err
	}
	if text != "" {
		r.plain = text
		// What Compose refuses, app-gen is to refuse too.
		r.refused, err = b.generate(app, own, "1", "", model{})
		return r, err
	}
	if b.names {
		if m, err = b.nameBuilds(m, plain, own); err != nil {
			return r, err
		}
	}
	for _, image := range m.images() {
		if strings.Contains(image, "@") {
			r.plain = image + " is named by its digest, and a stand-in has another"
			return r, nil
		}
	}
	one, two := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	if err := archive(one, b.standin, m, ""); err != nil {
		r.plain = err.Error()
		return r, nil
	}
	images := m.images()
	if len(images) > 0 {
		if err := archive(two, b.standin, m, images[0]); err != nil {
			return r, err
		}
	}
	want, text, err := b.plainUp(app, plain, one)
	if err != nil {
		return r, err
	}
	r.plain = text
	if r.refused, err = b.generate(app, own, "1", one, m); err != nil || r.plain != "" || r.refused != "" {
		return r, err
	}
	err = b.life(&r, app, own, two, m, want)
	return r, err
}

// read lets Compose read a project. text says why it does not.
func (b *bench) read(dir string) (m model, text string, err error) {
	c := b.Command(context.Background(), "sh", "-c", `cd "$0" && exec docker compose config --format json`, dir)
	out, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return m, lastLines(string(exit.Stderr)), nil
	}
	if err != nil {
		return m, "", err
	}
	return m, "", json.Unmarshal(out, &m)
}

// nameBuilds names the images of services that are built.
func (b *bench) nameBuilds(m model, dirs ...string) (model, error) {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.Services)) {
		if s := m.Services[name]; s.Image == "" && len(s.Build) > 0 {
			s.Image = "built/" + strings.ToLower(name) + ":1"
			m.Services[name] = s
			fmt.Fprintf(&text, "  %q: {image: %q}\n", name, s.Image)
		}
	}
	if text.Len() == 0 {
		return m, nil
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, "compose.override.yml")
		if _, err := os.Stat(file); err == nil {
			return m, nil // it has its own
		}
		if err := os.WriteFile(file, []byte("services:\n"+text.String()), 0o644); err != nil {
			return m, err
		}
	}
	return m, nil
}

// settle is how long a project has before it is looked at. Stand-ins start at once or not
// at all.
const settle = 2 * time.Second

// plainUp runs a project with plain Compose, notes what it makes, and takes it down.
func (b *bench) plainUp(app, dir, images string) (made map[string]string, text string, err error) {
	if text, err = b.said("docker", "load", "-i", images); err != nil || text != "" {
		return nil, text, err
	}
	compose := []string{"-c", `cd "$0" && exec docker compose -p "$@"`, dir, app}
	text, err = b.said("sh", append(compose, "up", "--detach", "--pull", "never", "--no-build")...)
	if err == nil && text == "" {
		time.Sleep(settle)
		if made, err = b.made(app); err == nil {
			for name, is := range made {
				if !strings.Contains(is, " running ") && !strings.Contains(is, " exited 0 ") {
					text = "service " + name + " does not run"
				}
			}
		}
	}
	_, downErr := b.said("sh", append(compose, "down", "--volumes", "--remove-orphans", "--timeout", "1")...)
	return made, text, errors.Join(err, downErr, b.clean())
}

// generate makes a release. text is what app-gen says if it refuses.
func (b *bench) generate(app, dir, version, images string, m model) (text string, err error) {
	args := []string{"-a", app, "-n", app + "-" + version, "-t", bed.Type, "-p", platform, "--orchestrator", "docker-compose",
		"-m", dir, "--output-path", b.release(app, version), "--no-cache", "--deep-delta=false"}
	for _, image := range m.images() {
		args = append(args, "--image", "docker-archive:"+images+":"+image)
	}
	if images == "" {
		args = append(args, "--skip-images")
	}
	_, text, err = appGen(filepath.Join(b.programs, "app-gen"), b.dir, args)
	return text, err
}

// appGen runs app-gen. refused is what it says, without warnings, if it fails.
func appGen(program, home string, args []string) (said, refused string, err error) {
	c := exec.Command(program, args...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		var errs []string
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "warning:") {
				errs = append(errs, line)
			}
		}
		return string(out), lastLines(strings.Join(errs, "")), nil
	}
	return string(out), "", err
}

func (b *bench) release(app, version string) string {
	return filepath.Join(b.Share(app), app+"-"+version+".mender")
}

// life installs, updates, rolls back and purges a project, and notes what it sees.
func (b *bench) life(r *row, app, own, second string, m model, want map[string]string) (err error) {
	if r.failed, err = b.said("mender-app", "install", "--unsigned", "--commit", b.release(app, "1")); err != nil || r.failed != "" {
		return errors.Join(err, b.purge(r, app))
	}
	made, err := b.made(app)
	if err != nil {
		return err
	}
	for name, is := range want {
		if made[name] != is {
			r.differs = fmt.Sprintf("service %s is %s, and plain Compose makes %s", name, made[name], is)
		}
	}
	data, err := b.writeData(app)
	if err != nil {
		return err
	}
	text, err := b.generate(app, own, "2", second, m)
	if err != nil || text != "" {
		r.failed = text
		return errors.Join(err, b.purge(r, app))
	}
	if err := b.update(r, app); err != nil {
		return err
	}
	r.lost = missing(data)
	if text, err = b.said("mender-app", "rollback", app); err != nil || text != "" {
		r.failed = "rollback: " + text
	}
	if r.lost == "" {
		r.lost = missing(data)
	}
	return errors.Join(err, b.purge(r, app))
}

// update installs the second release, and compares what happens with what check says.
func (b *bench) update(r *row, app string) error {
	before, err := b.containers(app)
	if err != nil {
		return err
	}
	checked, err := b.Run("mender-app", "check", "--unsigned", "--json", b.release(app, "2"))
	if err != nil {
		return err
	}
	var said struct {
		Changes struct{ Keeps, Restarts, Starts, Removes []string }
	}
	if err := json.Unmarshal([]byte(checked.Stdout), &said); err != nil {
		r.failed = "check: " + lastLines(checked.Output())
		return nil
	}
	text, err := b.said("mender-app", "install", "--unsigned", "--commit", b.release(app, "2"))
	if err != nil || text != "" {
		r.failed = "update: " + text
		return err
	}
	after, err := b.containers(app)
	if err != nil {
		return err
	}
	for name, was := range before {
		r.keeps++
		kept := after[name] == was
		if kept != slices.Contains(said.Changes.Keeps, name) {
			r.wrong = append(r.wrong, fmt.Sprintf("%s (kept: %v)", name, kept))
		}
	}
	return nil
}

// purge removes the application, first without its data.
func (b *bench) purge(r *row, app string) error {
	text, err := b.said("mender-app", "purge", "--force", "--data", app)
	if err != nil {
		return err
	}
	left, err := b.LeftBehind()
	if text != "" {
		left = append(left, "purge: "+text)
	}
	list, lerr := b.engine.ContainerList(context.Background(), container.ListOptions{All: true})
	for _, c := range list {
		left = append(left, "container "+strings.Join(c.Names, " "))
	}
	volumes, verr := b.engine.VolumeList(context.Background(), volume.ListOptions{})
	for _, v := range volumes.Volumes {
		left = append(left, "volume "+v.Name)
	}
	if _, err := os.Stat(b.Path("/data/mender-app/" + app)); err == nil {
		left = append(left, "its directory in the store")
	}
	r.left = strings.Join(left, ", ")
	return errors.Join(err, lerr, verr)
}

// clean removes what a project left in the engine.
func (b *bench) clean() error {
	_, err := b.said("sh", "-c", "docker rm -f $(docker ps -aq); docker volume prune -f; docker volume rm $(docker volume ls -q); docker network prune -f; docker image prune -af")
	return err
}

// containers are the containers of a project with the times of their starts, by service.
func (b *bench) containers(app string) (map[string]string, error) {
	return b.each(app, func(c container.InspectResponse) string { return c.ID + " " + c.State.StartedAt + ";" })
}

// made is what the engine made of each service, without what differs each time.
func (b *bench) made(app string) (map[string]string, error) {
	return b.each(app, func(c container.InspectResponse) string {
		var mounts, networks []string
		for _, m := range c.Mounts {
			mounts = append(mounts, fmt.Sprintf("%s:%s:%v", m.Type, m.Destination, m.RW))
		}
		slices.Sort(mounts)
		for name, n := range c.NetworkSettings.Networks {
			var aliases []string
			for _, a := range n.Aliases {
				if a != c.ID[:12] { // the engine's own alias: the short ID
					aliases = append(aliases, a)
				}
			}
			slices.Sort(aliases)
			networks = append(networks, name+fmt.Sprint(slices.Compact(aliases)))
		}
		slices.Sort(networks)
		env := slices.Sorted(slices.Values(c.Config.Env))
		ports, _ := json.Marshal(c.HostConfig.PortBindings) // it cannot fail: texts
		h := c.HostConfig
		return fmt.Sprint(c.Name, " ", c.State.Status, " ", c.State.ExitCode, " ", c.Config.Image, c.Config.Cmd, c.Config.Entrypoint, c.Config.User, c.Config.WorkingDir, env,
			h.RestartPolicy, h.Privileged, h.CapAdd, h.CapDrop, h.Devices, h.Memory, h.NanoCPUs, h.ExtraHosts, h.Init != nil && *h.Init, string(ports), mounts, networks, ";")
	})
}

// each describes the containers of the services of a project.
func (b *bench) each(app string, describe func(container.InspectResponse) string) (map[string]string, error) {
	ctx := context.Background()
	list, err := b.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "com.docker.compose.service"))})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(x, y container.Summary) int { return strings.Compare(x.Names[0], y.Names[0]) })
	all := map[string]string{}
	for _, c := range list {
		full, err := b.engine.ContainerInspect(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		all[c.Labels["com.docker.compose.service"]] += describe(full)
	}
	return all, nil
}

// writeData writes a file into each directory that is the application's data, and returns
// their names.
func (b *bench) writeData(app string) (files []string, err error) {
	_, err = b.each(app, func(c container.InspectResponse) string {
		for _, m := range c.Mounts {
			if m.Type != "volume" && !strings.Contains(m.Source, "/"+app+"/data/") {
				continue
			}
			file := filepath.Join(b.Path(m.Source), "kept-by-publicfiles")
			if os.WriteFile(file, []byte(c.ID), 0o600) == nil {
				files = append(files, file)
			}
		}
		return ""
	})
	return files, err
}

// missing names the first of the files that is gone.
func missing(files []string) string {
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			return f
		}
	}
	return ""
}
