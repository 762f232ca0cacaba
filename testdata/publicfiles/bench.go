package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

	"github.com/mender-app/mender-app/submodules/compose/rules"
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
	only     bool // nothing runs: what Compose, app-gen and check say is compared
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
	// As systemd has it: projects mount / with the propagation of mounts.
	if text, err := b.said("mount", "--make-rshared", "/"); err != nil || text != "" {
		return b, fmt.Errorf("share the mounts: %s: %w", text, err)
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
	if err := exampleEnv(plain, own); err != nil {
		return r, err
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
	if len(m.images()) == 0 {
		one = "" // profiles switch all services off
	} else if err := archive(one, b.standin, m, ""); err != nil {
		r.plain = err.Error()
		return r, nil
	}
	if b.only {
		return r, b.verdict(&r, app, own, one, m)
	}
	images := m.images()
	if len(images) > 0 {
		if err := archive(two, b.standin, m, images[0]); err != nil {
			return r, err
		}
	}
	want, text, err := b.plainUp(app, plain, one, m)
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

// verdict notes what app-gen and mender-app check say of a project that Compose reads.
func (b *bench) verdict(r *row, app, own, images string, m model) (err error) {
	if r.refused, err = b.generate(app, own, "1", images, m); err != nil || r.refused != "" {
		return err
	}
	if err := b.outside(m); err != nil {
		return err
	}
	checked, err := b.Run("mender-app", "check", "--unsigned", b.release(app, "1"))
	if err == nil && checked.Code != 0 {
		r.failed = checked.Output()
	}
	return err
}

// examples are the names under which projects have a .env for people to copy.
var examples = []string{".env.example", ".env.sample", ".env.template", ".env.dist", "env.example", "example.env", "sample.env", "template.env"}

// exampleEnv copies the example of a .env to its place, as a person does, if there is none.
func exampleEnv(dirs ...string) error {
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, ".env")); err == nil {
			continue
		}
		for _, name := range examples {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, ".env"), text, 0o644)
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// outside makes the networks and volumes that a project expects to be there.
func (b *bench) outside(m model) error {
	for what, list := range map[string]map[string]outside{"network": m.Networks, "volume": m.Volumes} {
		for _, o := range list {
			if !o.External {
				continue
			}
			if text, err := b.said("docker", what, "create", o.Name); err != nil || text != "" && !strings.Contains(text, "already exists") {
				return fmt.Errorf("%s %s: %s: %w", what, o.Name, text, err)
			}
		}
	}
	return nil
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
func (b *bench) plainUp(app, dir, images string, m model) (made map[string]string, text string, err error) {
	if images != "" {
		if text, err = b.said("docker", "load", "-i", images); err != nil || text != "" {
			return nil, text, err
		}
	}
	if err := b.outside(m); err != nil {
		return nil, "", err
	}
	compose := []string{"-c", `cd "$0" && exec docker compose "$@"`, dir}
	// The files may name the project. Otherwise it has the name of the application.
	files, err := rules.FindFiles(dir)
	if err != nil {
		return nil, "", err
	}
	named, err := rules.Named(dir, files)
	if err != nil {
		return nil, "", err
	}
	if !named {
		compose = append(compose, "-p", app)
	}
	text, err = b.said("sh", append(compose, "up", "--detach", "--pull", "never", "--no-build")...)
	if err == nil && text == "" {
		time.Sleep(settle)
		if made, err = b.made(); err == nil {
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
			if !strings.Contains(line, ": warning:") && !strings.Contains(line, ": note:") {
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
	if err := b.outside(m); err != nil {
		return err
	}
	if r.failed, err = b.said("mender-app", "install", "--unsigned", "--commit", b.release(app, "1")); err != nil || r.failed != "" {
		return errors.Join(err, b.purge(r, app, m))
	}
	made, err := b.made()
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
		return errors.Join(err, b.purge(r, app, m))
	}
	lost := func(after string) error {
		files, err := b.dataFiles(app)
		if r.lost == "" {
			r.lost = lostOf(after, data, files)
		}
		return err
	}
	for _, step := range []struct {
		name string
		take func() error
	}{
		{"update", func() error { return b.update(r, app) }},
		{"restart", func() error { return b.restart(r) }},
		{"rollback", func() error {
			text, err := b.said("mender-app", "rollback", app)
			r.fails("rollback", text)
			return err
		}},
	} {
		if err := step.take(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if err := lost(step.name); err != nil {
			return err
		}
	}
	files, err := b.dataFiles(app)
	if err != nil {
		return err
	}
	if text, err = b.said("mender-app", "purge", "--force", app); err != nil {
		return err
	}
	if text != "" {
		r.left = "purge: " + text
	}
	if r.lost == "" {
		r.lost = lostOf("purge without --data", data, files)
	}
	return b.purge(r, app, m)
}

// fails notes the first step that the device does not take.
func (r *row) fails(step, text string) {
	if r.failed == "" && text != "" {
		r.failed = step + ": " + text
	}
}

// restart stops the engine with all containers and starts it again, and what a machine calls
// when it has started. The containers must be those from before. Those that an engine starts
// again must run as before; a program without a restart policy stays ended, as with plain
// Compose, if it ended well when it was stopped.
func (b *bench) restart(r *row) error {
	ids := func(c container.InspectResponse) string { return c.ID + ";" }
	before, err := b.each(ids)
	if err != nil {
		return err
	}
	stays := map[string]bool{}
	if _, err := b.each(func(c container.InspectResponse) string {
		name := c.HostConfig.RestartPolicy.Name
		stays[c.Config.Labels["com.docker.compose.service"]] = name != container.RestartPolicyAlways && name != container.RestartPolicyUnlessStopped
		return ""
	}); err != nil {
		return err
	}
	ran, err := b.made()
	if err != nil {
		return err
	}
	if err := errors.Join(b.StopEngine(), b.StartEngine()); err != nil {
		return err
	}
	text, err := b.said("mender-app", "resume")
	if err != nil {
		return err
	}
	r.fails("restart", text)
	after, err := b.each(ids)
	if err != nil {
		return err
	}
	runs, err := b.made()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		switch {
		case after[name] != before[name]:
			r.fails("restart", "service "+name+" has another container")
		case runs[name] != ran[name] && !(stays[name] && strings.Contains(runs[name], " exited 0 ")):
			r.fails("restart", fmt.Sprintf("service %s is %s, and was %s", name, runs[name], ran[name]))
		}
	}
	return nil
}

// update installs the second release, and compares what happens with what check says.
func (b *bench) update(r *row, app string) error {
	before, err := b.containers()
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
		r.fails("check", lastLines(checked.Output()))
		return nil
	}
	text, err := b.said("mender-app", "install", "--unsigned", "--commit", b.release(app, "2"))
	if err != nil || text != "" {
		r.fails("update", text)
		return err
	}
	after, err := b.containers()
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

// purge removes the application with its data, and notes what is left.
func (b *bench) purge(r *row, app string, m model) error {
	var external []string
	for _, v := range m.Volumes {
		if v.External {
			external = append(external, v.Name)
		}
	}
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
		if slices.Contains(external, v.Name) {
			continue
		}
		left = append(left, "volume "+v.Name)
	}
	if _, err := os.Stat(b.Path("/data/mender-app/" + app)); err == nil {
		left = append(left, "its directory in the store")
	}
	if r.left != "" {
		left = append([]string{r.left}, left...)
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
func (b *bench) containers() (map[string]string, error) {
	return b.each(func(c container.InspectResponse) string { return c.ID + " " + c.State.StartedAt + ";" })
}

// made is what the engine made of each service, without what differs each time.
func (b *bench) made() (map[string]string, error) {
	return b.each(func(c container.InspectResponse) string {
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
		hosts := slices.Sorted(slices.Values(h.ExtraHosts)) // Compose passes them in any order
		return fmt.Sprint(c.Name, " ", c.State.Status, " ", c.State.ExitCode, " ", c.Config.Image, c.Config.Cmd, c.Config.Entrypoint, c.Config.User, c.Config.WorkingDir, env,
			h.RestartPolicy, h.Privileged, h.CapAdd, h.CapDrop, h.Devices, h.Memory, h.NanoCPUs, hosts, h.Init != nil && *h.Init, string(ports), mounts, networks, ";")
	})
}

// each describes the containers of each service: there is one project at a time.
func (b *bench) each(describe func(container.InspectResponse) string) (map[string]string, error) {
	ctx := context.Background()
	list, err := b.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "com.docker.compose.service"))})
	if err != nil {
		return nil, err
	}
	var full []container.InspectResponse
	for _, c := range list {
		f, err := b.engine.ContainerInspect(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		full = append(full, f)
	}
	slices.SortFunc(full, func(x, y container.InspectResponse) int { return strings.Compare(x.Name, y.Name) })
	all := map[string]string{}
	for _, c := range full {
		all[c.Config.Labels["com.docker.compose.service"]] += describe(c)
	}
	return all, nil
}

// dataFiles names a file in each directory that is the application's data, by the container
// and the place of the directory in it: where the container sees it now.
func (b *bench) dataFiles(app string) (map[string]string, error) {
	files := map[string]string{}
	_, err := b.each(func(c container.InspectResponse) string {
		for _, m := range c.Mounts {
			if m.Type == "volume" || strings.Contains(m.Source, "/"+app+"/data/") {
				files[strings.TrimPrefix(c.Name, "/")+":"+m.Destination] = filepath.Join(b.Path(m.Source), "kept-by-publicfiles")
			}
		}
		return ""
	})
	return files, err
}

// writeData writes a file into each directory that is the application's data, and returns
// what each says, by its place.
func (b *bench) writeData(app string) (data map[string]string, err error) {
	files, err := b.dataFiles(app)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		_ = os.WriteFile(file, []byte(file), 0o600) // a volume may be read-only
	}
	data = map[string]string{}
	for place, file := range files { // two places may be one directory
		if text, err := os.ReadFile(file); err == nil {
			data[place] = string(text)
		}
	}
	return data, nil
}

// lostOf names the first place in which the data is no longer what it was; "" if there is none.
func lostOf(after string, data, files map[string]string) string {
	for _, place := range slices.Sorted(maps.Keys(data)) {
		if text, err := os.ReadFile(files[place]); err != nil || string(text) != data[place] {
			return after + ": " + place
		}
	}
	return ""
}
