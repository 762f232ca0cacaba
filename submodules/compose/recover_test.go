package compose

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// lossy is an application on a network of its own: web changes with each release, and waits
// for side to be healthy; side does not change, and has a second network and a mounted file;
// both need a file among their data; peer shares side's network.
func (b *bench) lossy(version string) map[string]string {
	return map[string]string{"conf": "a", "docker-compose.yml": strings.NewReplacer("APP", b.app, "VERSION", version).Replace(`services:
  web:
    image: APP:1
    command: [need, /data/here, VERSION]
    restart: always
    deploy: {resources: {limits: {cpus: "0.29", memory: 64m, pids: 50}}}
    stop_grace_period: 1s
    volumes: ["data:/data"]
    depends_on: {side: {condition: service_healthy}}
  side:
    image: APP:1
    command: [need, /data/here]
    healthcheck: {test: [CMD, /prog, check, /version], interval: 1s}
    restart: always
    stop_grace_period: 1s
    networks: [default, back]
    volumes: ["data:/data", "./conf:/conf", "/unnamed"]
  peer:
    image: APP:1
    network_mode: service:side
    stop_grace_period: 1s
networks:
  back: {}
volumes:
  data: {name: APP_data}
`)}
}

// docker runs the docker command.
func (b *bench) docker(args ...string) string {
	b.Helper()
	out, err := b.tryDocker(args...)
	require.NoError(b, err, "docker %s: %s", strings.Join(args, " "), out)
	return out
}

func (b *bench) tryDocker(args ...string) (string, error) {
	cmd := exec.Command("docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+host())
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// each runs a docker command for each container of the application.
func (b *bench) each(args ...string) {
	b.Helper()
	for _, svc := range []string{"peer", "web", "side"} {
		for _, c := range b.service(svc) {
			b.docker(append(args, c.ID)...)
		}
	}
}

func (b *bench) networks() []network.Summary {
	b.Helper()
	nets, err := b.cli.NetworkList(b.Context(), network.ListOptions{Filters: filters.NewArgs(filters.Arg("name", b.app))})
	require.NoError(b, err)
	return nets
}

// whatIsLost is what an engine loses and what people do, by name. After each the
// application can be updated, rolled back and started.
var whatIsLost = map[string]func(b *bench){
	"nothing":                        func(*bench) {},
	"stopped, and networks pruned":   func(b *bench) { b.each("stop", "-t1"); b.removeNetworks() },
	"networks gone while it runs":    func(b *bench) { b.disconnect(); b.removeNetworks() },
	"disconnected from all networks": func(b *bench) { b.disconnect() },
	"disconnected from one network": func(b *bench) {
		b.docker("network", "disconnect", b.app+"_back", b.one("side").ID)
	},
	"networks made by hand": func(b *bench) {
		b.each("stop", "-t1")
		b.removeNetworks()
		b.docker("network", "create", b.app+"_default")
	},
	"connected to a network by hand": func(b *bench) {
		b.each("stop", "-t1")
		b.removeNetworks()
		b.docker("network", "create", b.app+"_default")
		b.docker("network", "connect", b.app+"_default", b.one("side").ID)
	},
	"containers gone":         func(b *bench) { b.each("rm", "-f") },
	"everything but the data": func(b *bench) { b.each("rm", "-f"); b.removeNetworks() },
	"one container gone":      func(b *bench) { b.docker("rm", "-f", b.one("side").ID) },
	"half made":               func(b *bench) { b.remake("web"); b.remake("side") },
	"paused":                  func(b *bench) { b.each("pause") },
	"stopped":                 func(b *bench) { b.each("stop", "-t1") },
	"killed":                  func(b *bench) { b.each("kill") },
	"renamed":                 func(b *bench) { b.docker("rename", b.one("side").ID, fmt.Sprintf("%s-%08x", b.app, rand.Uint32())) },
	"restarting": func(b *bench) {
		require.NoError(b, os.Remove(b.inVolume("here")))
		for _, service := range []string{"web", "side"} {
			id := b.one(service).ID
			b.docker("restart", "-t1", id)
			require.Eventually(b, func() bool {
				c, err := b.cli.ContainerInspect(b.Context(), id)
				return err == nil && c.State.Restarting && c.RestartCount > 3
			}, 20*time.Second, 50*time.Millisecond)
		}
		b.put("here")
	},
	"removal interrupted": func(b *bench) {
		info, err := b.cli.Info(b.Context())
		require.NoError(b, err)
		for _, service := range []string{"web", "side"} {
			id := b.one(service).ID
			file := filepath.Join(info.DockerRootDir, "containers", id, "hostname")
			if out, err := exec.Command("chattr", "+i", file).CombinedOutput(); err != nil {
				b.Skipf("this file system holds nothing back: %s", out)
			}
			_, err = b.tryDocker("rm", "-f", id)
			require.NoError(b, exec.Command("chattr", "-i", file).Run())
			require.Error(b, err)
		}
	},
	"copies of files gone": func(b *bench) { require.NoError(b, os.RemoveAll(filepath.Join(b.store, b.app, mountsDir))) },
	"tags moved": func(b *bench) {
		b.each("stop", "-t1")
		b.docker("tag", "mender-app-test-other:1", b.app+":1")
	},
	"tags gone": func(b *bench) { b.docker("rmi", b.app+":1") },
	"started as another project": func(b *bench) {
		b.byHand("-p", b.app, "down")
		b.byHand("-p", "x"+b.app, "up", "-d")
	},
	"started as another project too": func(b *bench) { b.byHand("-p", "x"+b.app, "up", "-d") },
	"another image":                  func(b *bench) { b.fromAnother("web"); b.fromAnother("side") },
	"no restart policy": func(b *bench) {
		b.docker("update", "--restart", "no", b.one("web").ID)
		b.docker("update", "--restart", "on-failure:3", b.one("side").ID)
	},
	"other limits": func(b *bench) {
		b.docker("update", "--memory", "128m", "--memory-swap", "256m", "--cpus", "0.7", "--pids-limit", "60", b.one("web").ID)
	},
	"limits that it had not": func(b *bench) {
		b.docker("update", "--memory", "128m", "--memory-swap", "256m", "--cpus", "0.7", "--cpuset-cpus", "0", b.one("side").ID)
		b.docker("update", "--memory-reservation", "32m", "--cpu-shares", "512", b.one("web").ID)
	},
	"names changed for each other": func(b *bench) {
		web, side := b.one("web"), b.one("side")
		b.docker("rename", web.ID, b.app+"-elsewhere")
		b.docker("rename", side.ID, name(web))
		b.docker("rename", web.ID, name(side))
	},
	"connected again to its network": func(b *bench) {
		for _, n := range []string{"default", "back"} {
			b.docker("network", "disconnect", b.app+"_"+n, b.one("side").ID)
			b.docker("network", "connect", b.app+"_"+n, b.one("side").ID)
		}
	},
	"more of it": func(b *bench) { b.byHand("-p", b.app, "up", "-d", "--scale", "web=2") },
	"the engine's helpers killed": func(b *bench) {
		for _, service := range []string{"web", "side"} {
			out, err := exec.Command("pkill", "-9", "-f", "containerd-shim.* "+b.one(service).ID).CombinedOutput()
			require.NoError(b, err, "%s", out)
		}
	},
	"a volume made by hand": func(b *bench) {
		b.each("rm", "-f")
		b.docker("volume", "rm", b.app+"_data")
		b.docker("volume", "create", b.app+"_data")
		b.put("here")
	},
	"down and up by hand": func(b *bench) { b.byHand("-p", b.app, "down"); b.byHand("-p", b.app, "up", "-d") },
}

func (b *bench) byHand(args ...string) {
	b.Helper()
	b.docker(append([]string{"compose", "--project-directory", filepath.Join(b.store, b.app, "manifests")}, args...)...)
}

func (b *bench) disconnect() {
	b.Helper()
	for _, n := range b.networks() {
		full, err := b.cli.NetworkInspect(b.Context(), n.ID, network.InspectOptions{})
		require.NoError(b, err)
		for id := range full.Containers {
			b.docker("network", "disconnect", "-f", n.ID, id)
		}
	}
}

func (b *bench) removeNetworks() {
	b.Helper()
	for _, n := range b.networks() {
		b.docker("network", "rm", n.ID)
	}
}

// remake makes a service's container again, without starting it.
func (b *bench) remake(service string) {
	b.Helper()
	c, err := b.cli.ContainerInspect(b.Context(), b.one(service).ID)
	require.NoError(b, err)
	b.docker("rm", "-f", "-v", c.ID)
	_, err = b.cli.ContainerCreate(b.Context(), c.Config, &container.HostConfig{}, nil, nil, strings.TrimPrefix(c.Name, "/"))
	require.NoError(b, err)
}

// fromAnother makes a service's container again from an image that somebody made of it, with
// the labels of Compose.
func (b *bench) fromAnother(service string) {
	b.Helper()
	c, err := b.cli.ContainerInspect(b.Context(), b.one(service).ID)
	require.NoError(b, err)
	called := strings.TrimPrefix(c.Name, "/")
	ref := "mender-app-test-committed:" + b.app
	made, err := b.cli.ContainerCommit(b.Context(), c.ID, container.CommitOptions{Reference: ref})
	require.NoError(b, err)
	b.Cleanup(func() {
		_, _ = b.cli.ImageRemove(context.Background(), made.ID, dimage.RemoveOptions{Force: true})
	})
	b.docker("rm", "-f", c.ID)
	c.Config.Image = ref
	net := map[string]*network.EndpointSettings{}
	for name := range c.NetworkSettings.Networks {
		net[name] = &network.EndpointSettings{}
	}
	if api := b.cli.ClientVersion(); len(net) > 1 && api < "1.44" { // one network at a time
		net = map[string]*network.EndpointSettings{b.app + "_default": {}}
		defer func() { b.docker("network", "connect", b.app+"_back", called) }()
	}
	again, err := b.cli.ContainerCreate(b.Context(), c.Config, c.HostConfig, &network.NetworkingConfig{EndpointsConfig: net}, nil, called)
	require.NoError(b, err)
	require.NoError(b, b.cli.ContainerStart(b.Context(), again.ID, container.StartOptions{}))
}

func (b *bench) inVolume(file string) string {
	b.Helper()
	v, err := b.cli.VolumeInspect(b.Context(), b.app+"_data")
	require.NoError(b, err)
	return filepath.Join(v.Mountpoint, file)
}

func (b *bench) put(file string) {
	b.Helper()
	require.NoError(b, os.WriteFile(b.inVolume(file), []byte("data"), 0o644))
}

// runs asserts that the application runs in a version, connected and with its data.
func (b *bench) runs(version string) {
	b.Helper()
	ok, err := b.mod.Healthy(b.Context(), submodules.Request{App: b.app})
	require.NoError(b, err)
	require.True(b, ok)
	nets := map[string]string{}
	for _, n := range b.networks() {
		nets[n.Name] = n.ID
	}
	for service, want := range map[string][]string{"web": {"default"}, "side": {"default", "back"}, "peer": nil} {
		c, err := b.cli.ContainerInspect(b.Context(), b.one(service).ID)
		require.NoError(b, err)
		require.Equal(b, "running", string(c.State.Status), service)
		project := c.Config.Labels[labelProject]
		for _, n := range want {
			ep := c.NetworkSettings.Networks[project+"_"+n]
			require.NotNil(b, ep, "%s on %s", service, n)
			require.Equal(b, nets[project+"_"+n], ep.NetworkID)
			require.NotEmpty(b, ep.EndpointID)
			require.Contains(b, ep.Aliases, service)
		}
		if service == "web" {
			require.Equal(b, []string{"need", "/data/here", version}, []string(c.Config.Cmd))
		}
		if service != "peer" {
			require.Equal(b, "always", string(c.HostConfig.RestartPolicy.Name))
		}
		has := c.HostConfig.Resources
		limits := []any{has.Memory, has.NanoCPUs / 1e6, has.MemoryReservation, has.CPUShares, has.CpusetCpus}
		if service == "web" {
			require.Equal(b, []any{int64(64 << 20), int64(290), int64(0), int64(0), ""}, limits)
			require.Equal(b, int64(50), *has.PidsLimit)
		} else {
			require.Equal(b, []any{int64(0), int64(0), int64(0), int64(0), ""}, limits, service)
		}
		if service == "peer" {
			require.Equal(b, "container:"+b.one("side").ID, string(c.HostConfig.NetworkMode))
		}
	}
	content, err := os.ReadFile(b.inVolume("here"))
	require.NoError(b, err)
	require.Equal(b, "data", string(content))
}

// What the engine has lost, or somebody has changed, is put right by an update, by its
// rollback and by START. Named volumes keep their data.
func TestPutsRightWhatIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range whatIsLost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.conf("HEALTH_DEADLINE=20\nHEALTH_WINDOW=300ms\n")
			_, err := b.cli.VolumeCreate(t.Context(), volume.CreateOptions{Name: b.app + "_data"})
			require.NoError(t, err)
			t.Cleanup(func() { _ = b.cli.VolumeRemove(context.Background(), b.app+"_data", true) })
			b.put("here")
			v1 := b.load("1")
			if name == "tags moved" {
				b.other()
			}
			req := submodules.Request{App: b.app, Components: []submodules.Component{v1}}
			req.Dir = b.release("1", b.lossy("one"))
			b.release("2", b.lossy("two"))
			req.Dir = b.release("1", nil)
			require.NoError(t, b.mod.Rollout(t.Context(), req))
			b.runs("one")
			side, unnamed := b.one("side").ID, b.unnamed()

			lose(b)
			if name == "another image" {
				// peer has lost the network of side, but runs.
				for what, ask := range map[string]func(context.Context, submodules.Request) (bool, error){"HEALTHY": b.mod.Healthy, "ALIVE": b.mod.Alive} {
					ok, err := ask(t.Context(), req)
					require.NoError(t, err)
					require.False(t, ok, what)
				}
				require.Contains(t, b.log.String(), "-side-1 runs another image than the release's "+v1.URL)
			}
			b.release("2", nil)
			require.NoError(t, b.mod.Rollout(t.Context(), req), "an update")
			b.runs("two")
			if name == "nothing" || name == "paused" || name == "renamed" || strings.HasPrefix(name, "tags") || name == "stopped" || name == "killed" || name == "no restart policy" || name == "other limits" {
				require.Equal(t, side, b.one("side").ID, "it need not be made again")
			}
			if strings.Contains(name, "network") {
				require.Equal(t, unnamed, b.unnamed(), "a volume without a name goes on to the new container")
			}

			lose(b)
			b.release("1", nil)
			require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}), "a rollback")
			b.runs("one")

			lose(b)
			require.NoError(t, b.mod.Start(t.Context(), req), "START")
			b.runs("one")
			require.NoError(t, b.mod.Stop(t.Context(), submodules.StopRequest{Request: req}))
			require.NoError(t, b.mod.Start(t.Context(), req))
			b.runs("one")
		})
	}
}

// A name that a service needs and somebody's container has: ROLLOUT refuses the release and
// changes nothing. ROLLBACK and START give that container another name, and it goes on.
func TestNameOfOthers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"running", "stopped"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.conf("HEALTH_DEADLINE=20\nHEALTH_WINDOW=300ms\n")
			v1 := b.load("1")
			b.docker("tag", imagestore.OwnRef(b.app, v1.Digest), "person:"+b.app)
			both := "services:\n  web: {image: APP:1, command: [sleep, VERSION], stop_grace_period: 1s}\n  side: {image: APP:1, stop_grace_period: 1s}\n"
			files := func(version string) map[string]string {
				return map[string]string{"compose.yaml": b.named(strings.Replace(both, "VERSION", version, 1))}
			}
			req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("1", files("one"))}
			require.NoError(t, b.mod.Rollout(t.Context(), req))
			// take has somebody's container take the name of a service's.
			take := func(service string) (id string) {
				called := strings.TrimPrefix(b.one(service).Names[0], "/")
				b.docker("rm", "-f", b.one(service).ID)
				b.docker("create", "--name", called, "person:"+b.app)
				if kind == "running" {
					b.docker("start", called)
				}
				return b.docker("inspect", "--format", "{{.Id}}", called)
			}
			// kept requires that somebody's container is as it was, under another name.
			kept := func(id, called string) {
				t.Helper()
				require.Equal(t, "/"+called+" "+map[string]string{"running": "running", "stopped": "created"}[kind], b.docker("inspect", "--format", "{{.Name}} {{.State.Status}}", id))
			}
			id := take("side")
			web := b.one("web").ID
			b.release("2", files("two"))
			require.ErrorContains(t, b.mod.Rollout(t.Context(), req), "docker rename "+b.app+"-side-1 NAME")
			kept(id, b.app+"-side-1")
			require.Equal(t, web, b.one("web").ID)
			if kind == "running" {
				port := strconv.Itoa(10000 + rand.IntN(20000))
				b.docker("run", "-d", "--name", b.app+"-thief", "-p", port+":1", "person:"+b.app)
				text := strings.Replace(files("three")["compose.yaml"], "three]", "three], ports: [\""+port+":1\"]", 1)
				b.release("3", map[string]string{"compose.yaml": text})
				b.docker("rename", b.app+"-side-1", b.app+"-aside")
				refused := "service web needs the port " + port + "/tcp, which the container " + b.app + "-thief has"
				require.ErrorContains(t, b.mod.Rollout(t.Context(), req), refused)
				_, err := b.mod.Check(t.Context(), req)
				require.ErrorContains(t, err, refused)
				require.Equal(t, web, b.one("web").ID)
				b.docker("rm", "-f", b.app+"-thief")
				b.docker("rename", b.app+"-aside", b.app+"-side-1")
			}
			b.release("1", nil)
			require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}))
			kept(id, b.app+"-side-1-other")
			require.Equal(t, container.StateRunning, b.one("side").State)

			second := take("side")
			require.NoError(t, b.mod.Start(t.Context(), req))
			kept(second, b.app+"-side-1-other-2")
			require.Equal(t, container.StateRunning, b.one("side").State)

			// The release that comes back makes a container again that has another name.
			require.NoError(t, b.mod.Stop(t.Context(), submodules.StopRequest{Request: req, Remove: true}))
			b.release("2", nil)
			require.NoError(t, b.mod.Rollout(t.Context(), req))
			b.docker("rename", b.one("web").ID, b.app+"-elsewhere")
			b.docker("create", "--name", b.app+"-web-1", "person:"+b.app)
			require.NoError(t, b.mod.Start(t.Context(), req))
			require.Equal(t, "/"+b.app+"-elsewhere", b.one("web").Names[0], "it needs the name no more")
			b.release("1", nil)
			require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}))
			b.docker("inspect", b.app+"-web-1-other")
			require.Equal(t, "/"+b.app+"-web-1", b.one("web").Names[0])
		})
	}
}

// unnamed is the volume without a name of side.
func (b *bench) unnamed() string {
	b.Helper()
	for _, m := range b.one("side").Mounts {
		if m.Destination == "/unnamed" {
			return m.Name
		}
	}
	b.Fatal("side has no volume without a name")
	return ""
}

// other is an image of somebody else.
func (b *bench) other() {
	b.Helper()
	img, _ := b.image("other")
	f, err := os.Open(b.archive(img, "mender-app-test-other:1"))
	require.NoError(b, err)
	defer f.Close()
	res, err := b.cli.ImageLoad(b.Context(), f)
	require.NoError(b, err)
	var said bytes.Buffer
	_, err = said.ReadFrom(res.Body)
	require.NoError(b, err)
	res.Body.Close()
	b.Cleanup(func() {
		_, _ = b.cli.ImageRemove(context.Background(), "mender-app-test-other:1", dimage.RemoveOptions{Force: true})
	})
}

// conf writes the sub-module's configuration.
func (b *bench) conf(text string) {
	b.Helper()
	require.NoError(b, os.WriteFile(filepath.Join(b.mod.Config.ConfigDir, confName), []byte(text), 0o600))
}

// named is a text with the application's name for APP.
func (b *bench) named(text string) string { return strings.ReplaceAll(text, "APP", b.app) }

// volumes are the names of the engine's volumes that have the application's name in theirs.
func (b *bench) volumes() (names []string) {
	b.Helper()
	list, err := b.cli.VolumeList(b.Context(), volume.ListOptions{Filters: filters.NewArgs(filters.Arg("name", b.app))})
	require.NoError(b, err)
	for _, v := range list.Volumes {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return names
}
