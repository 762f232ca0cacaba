package daily

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// restarting makes the services of the shop's compose file start with the engine.
func restarting(release string) string {
	return strings.ReplaceAll(e2e.Compose(release), "    image:", "    restart: always\n    image:")
}

// A network that was pruned while the application was stopped, a database of networks that
// was lost in a power cut, and paused containers: the application starts, is updated and goes
// back, and the client agrees.
func TestEngineHasLostSomething(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	files := map[string]string{}
	for _, v := range []string{"1", "2"} {
		files[v] = e2e.Generate(t, d, "shop", "shop-"+v, v, restarting(v), e2e.Archive(t, e2e.Web(t, v, "")), e2e.Archive(t, e2e.Stock(t)))
	}
	e2e.Mender(t, d, "install", files["1"])
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "1")
	// updated updates it to release 2, and goes back.
	updated := func(t *testing.T) {
		t.Helper()
		e2e.Mender(t, d, "install", files["2"])
		e2e.Says(t, w, "web 2")
		e2e.Mender(t, d, "rollback")
		e2e.Settled(t, d, w, "1")
	}

	t.Run("pruned networks", func(t *testing.T) {
		lose := func() {
			d.MustRun(t, "bash", "-ec", "docker stop -t 1 shop-web-1 shop-stock-1; docker network prune -f")
		}
		d.MustRun(t, "mender-app", "stop", "shop")
		d.MustRun(t, "docker", "network", "prune", "-f")
		d.MustRun(t, "mender-app", "start", "shop")
		e2e.Says(t, w, "web 1")
		lose()
		updated(t)
		lose()
		d.MustRun(t, "mender-app", "start", "shop")
		e2e.Settled(t, d, w, "1")
		lose()
		e2e.Killed(t, d, "app ArtifactInstall/call.ROLLOUT:1", "install", files["2"])
		d.MustRun(t, "mender-app", "resume")
		e2e.Settled(t, d, w, "1")
	})
	t.Run("a lost database of networks", func(t *testing.T) {
		lose := func() {
			require.NoError(t, d.StopEngine())
			d.MustRun(t, "rm", "/var/lib/docker/network/files/local-kv.db")
			require.NoError(t, d.StartEngine())
		}
		lose()
		updated(t)
		lose()
		d.MustRun(t, "mender-app", "start", "shop")
		e2e.Settled(t, d, w, "1")
	})
	t.Run("paused containers", func(t *testing.T) {
		for _, service := range []string{"web", "stock"} {
			d.MustRun(t, "docker", "pause", "shop-"+service+"-1")
			e2e.Mender(t, d, "install", files["2"])
			e2e.Says(t, w, "web 2")
			d.MustRun(t, "docker", "pause", "shop-"+service+"-1")
			e2e.Mender(t, d, "rollback")
			e2e.Settled(t, d, w, "1")
		}
	})
	t.Run("the rules of the firewall", func(t *testing.T) {
		restart := func(command string) {
			d.MustRun(t, "bash", "-ec", "echo ENGINE_RESTART_COMMAND="+command+" >>/etc/mender/mender-app-docker-compose.conf")
		}
		restart("none")
		d.MustRun(t, "bash", "-ec", "docker stop -t 1 shop-web-1 shop-stock-1; iptables -t nat -F; iptables -t nat -X; iptables -F; iptables -X")
		r, err := d.Run("mender-app", "start", "shop")
		require.NoError(t, err)
		require.NotZero(t, r.Code)
		require.Contains(t, r.Output(), "the engine's rules of the firewall are gone: restart the engine")

		require.NoError(t, d.AddRestartCommand())
		restart(bed.RestartCommand)
		started := make(chan error, 1)
		go func() {
			r, err := d.Run("mender-app", "start", "shop")
			if err == nil && r.Code != 0 {
				err = errors.New(r.Output())
			}
			started <- err
		}()
		bed.Eventually(t, time.Minute, "the engine is restarted", func() bool {
			wanted, err := d.RestartIfWanted()
			require.NoError(t, err)
			return wanted
		})
		require.NoError(t, <-started)
		e2e.Settled(t, d, w, "1")
	})
	t.Run("a name that somebody takes", func(t *testing.T) {
		take := func() {
			d.MustRun(t, "bash", "-ec", "docker rm -f shop-stock-1; docker run -d --name shop-stock-1 shop/stock:1")
		}
		for _, command := range []string{"resume", "start shop"} {
			take()
			if command == "resume" {
				require.Contains(t, e2e.MenderFails(t, d, "install", files["2"]), "docker rename shop-stock-1 NAME")
			}
			d.MustRun(t, "mender-app", strings.Fields(command)...)
			require.Equal(t, "true", strings.TrimSpace(d.MustRun(t, "docker", "inspect", "--format", "{{.State.Running}}", "shop-stock-1-other")), command)
			d.MustRun(t, "docker", "rm", "-f", "shop-stock-1-other")
			e2e.Settled(t, d, w, "1")
		}
	})
	t.Run("a deleted bridge", func(t *testing.T) {
		d.MustRun(t, "bash", "-ec", "docker stop -t 1 shop-web-1 shop-stock-1; ip link delete docker0; ip link delete br-$(docker network ls --no-trunc -q -f name=shop_default | cut -c1-12)")
		d.MustRun(t, "mender-app", "start", "shop")
		e2e.Settled(t, d, w, "1")
		updated(t)
	})
	t.Run("a dangling endpoint", func(t *testing.T) {
		d.CrashEngine() // the database of networks goes on to have the containers' connections
		d.MustRun(t, "bash", "-ec", "pkill -9 containerd-shim; rm -rf /var/lib/docker/containers/*")
		require.NoError(t, d.StartEngine())
		updated(t)
	})
	e2e.Visit(t, d, "2")
	t.Run("a deleted volume", func(t *testing.T) {
		require.NoError(t, d.StopEngine())
		d.MustRun(t, "rm", "-r", "/var/lib/docker/volumes/shop_counts")
		require.NoError(t, d.StartEngine())
		said := e2e.MenderSays(t, d, "install", files["2"])
		require.Contains(t, said, "the engine has lost the volume shop_counts, and with it its data: it is made again, empty")
		e2e.Says(t, w, "web 2")
		e2e.Visit(t, d, "1")
		e2e.Mender(t, d, "rollback")
		e2e.Settled(t, d, w, "1")
	})
}

// A first installation that fails leaves nothing, also where Compose made no container, and
// where somebody else's container has the image.
func TestFirstInstallThatMakesNoContainerLeavesNothing(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, bed.WriteArchive(d.Share("stock.tar"), e2e.Stock(t)))
	d.MustRun(t, "docker", "load", "-q", "-i", d.Share("stock.tar"))
	d.MustRun(t, "docker", "run", "-d", "--name", "taken", "shop/stock:1")
	before := d.MustState(t)
	for _, more := range []string{"    container_name: taken\n", "    runtime: none-such\n"} {
		text := strings.Replace(e2e.Compose("1"), "  stock:\n", "  stock:\n"+more, 1)
		file := e2e.Generate(t, d, "shop", "shop-1", "1", text, e2e.Archive(t, e2e.Web(t, "1", "")), e2e.Archive(t, e2e.Stock(t)))
		said := e2e.MenderFails(t, d, "install", file)
		if strings.Contains(more, "taken") {
			require.Contains(t, said, "docker rm --force taken")
		}
		after := d.MustState(t)
		require.Equal(t, before.Containers, after.Containers)
		require.Equal(t, before.Images, after.Images)
		require.Equal(t, before.Networks, after.Networks)
		require.Equal(t, before.Volumes, after.Volumes)
		d.MustProvide(t, before.Provides)
	}
	// What an older version left.
	for _, command := range []string{"resume", "purge shop"} {
		d.MustRun(t, "docker", "network", "create", "--label", "com.docker.compose.project=shop", "--label", "com.docker.compose.network=default", "shop_default")
		d.MustRun(t, "mender-app", strings.Fields(command)...)
		require.Equal(t, before.Networks, d.MustState(t).Networks, command)
	}
}

// Compose gives up when the engine refuses one container, and the engine goes on to make
// another one, slowly. Neither a first installation nor an update that fails like this leaves
// that container.
func TestEngineStillMakesAContainer(t *testing.T) {
	d := e2e.Device(t)
	held := slowVolumes(t, d, "shop-web-1", "shop-extra-1")
	wasSlow := func() {
		t.Helper()
		// An engine may see early enough that Compose has gone: the containerd store mostly does.
		t.Logf("the engine was still making a container %d times", held())
	}
	text := strings.Replace(e2e.Compose("1"), "    ports: [\"8080:8080\"]\n", "    volumes: [\"slow:/slow\"]\n", 1)
	text = strings.Replace(text, "  stock:\n", "  stock:\n    runtime: none-such\n", 1) + "  slow: {driver: slow}\n"
	images := []string{e2e.Archive(t, e2e.Web(t, "1", "")), e2e.Archive(t, e2e.Stock(t))}
	first := e2e.Generate(t, d, "shop", "shop-1", "1", text, images...)
	before := d.MustState(t)
	e2e.MenderFails(t, d, "install", first)
	requireSame(t, before, d.MustState(t))
	wasSlow()

	e2e.Mender(t, d, "install", e2e.Generate(t, d, "shop", "shop-1", "1", e2e.Compose("1"), images...))
	e2e.Mender(t, d, "commit")
	// Neither service of the release before is in the one that fails.
	before = d.MustState(t)
	text = strings.NewReplacer("  web:\n", "  extra:\n", "  stock:\n", "  more:\n", "8081", "8082").Replace(text)
	e2e.MenderFails(t, d, "install", e2e.Generate(t, d, "shop", "shop-2", "2", text, images...))
	after := d.MustState(t)
	require.Len(t, after.Containers, len(before.Containers))
	require.Equal(t, before.Images, after.Images)
	wasSlow()
}

func requireSame(t *testing.T, before, after bed.State) {
	t.Helper()
	require.Equal(t, before.Containers, after.Containers)
	require.Equal(t, before.Images, after.Images)
	require.Equal(t, before.Networks, after.Networks)
	require.Equal(t, before.Volumes, after.Volumes)
}

// slowVolumes gives the engine a driver of volumes, "slow", which takes seconds when the
// engine makes one of the containers. held returns how often it did since the last call.
func slowVolumes(t *testing.T, d *bed.Device, containers ...string) (held func() int64) {
	t.Helper()
	engine, err := d.Docker()
	require.NoError(t, err)
	t.Cleanup(func() { engine.Close() })
	// The engine has the name of a container that it is making, and does not list it.
	isMaking := func() bool {
		for _, called := range containers {
			if _, err := engine.ContainerInspect(context.Background(), called); err == nil {
				continue
			}
			made, err := engine.ContainerCreate(context.Background(), &container.Config{Image: "shop/stock:1"}, nil, nil, nil, called)
			if err != nil && strings.Contains(err.Error(), "is already in use") {
				return true
			}
			_ = engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true})
		}
		return false
	}
	var times atomic.Int64
	var mu sync.Mutex
	volumes := map[string]bool{}
	type volume struct{ Name, Mountpoint string }
	data := d.Share("slow")
	require.NoError(t, os.MkdirAll(data, 0o755))
	answer := func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Name string }
		_ = json.NewDecoder(r.Body).Decode(&asked)
		if r.URL.Path == "/VolumeDriver.Get" && isMaking() {
			times.Add(1)
			time.Sleep(5 * time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		said := map[string]any{"Err": ""}
		switch r.URL.Path {
		case "/Plugin.Activate":
			said = map[string]any{"Implements": []string{"VolumeDriver"}}
		case "/VolumeDriver.Create":
			volumes[asked.Name] = true
		case "/VolumeDriver.Remove":
			delete(volumes, asked.Name)
		case "/VolumeDriver.Get":
			said["Volume"] = volume{asked.Name, data}
			if !volumes[asked.Name] {
				said = map[string]any{"Err": "no such volume"}
			}
		case "/VolumeDriver.List":
			list := []volume{}
			for name := range volumes {
				list = append(list, volume{name, data})
			}
			said["Volumes"] = list
		case "/VolumeDriver.Path", "/VolumeDriver.Mount":
			said["Mountpoint"] = data
		case "/VolumeDriver.Capabilities":
			said = map[string]any{"Capabilities": map[string]string{"Scope": "local"}}
		}
		_ = json.NewEncoder(w).Encode(said)
	}
	socket := d.Share("slow.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	// An engine out of another tree has an /etc of its own, and this /run.
	d.MustRun(t, "bash", "-ec", "mkdir -p /run/docker/plugins; cd /run/docker/plugins; touch slow.sock; mount --bind '"+socket+"' slow.sock")
	require.NoError(t, d.StopEngine())
	require.NoError(t, d.StartEngine())
	return func() int64 { return times.Swap(0) }
}

// Compose and the sub-module are killed while the engine makes a container, slowly. The
// engine goes on. What it makes does not stay: neither the rollback that follows at once nor a
// later mender-app resume leaves a container that was never started.
func TestComposeKilledWhileTheEngineMakesAContainer(t *testing.T) {
	for name, kill := range map[string]string{
		"Compose":                    " up --pull",
		"Compose and the sub-module": " up --pull|docker-compose ROLLOUT",
	} {
		t.Run(name, func(t *testing.T) {
			d := e2e.Device(t)
			held := slowVolumes(t, d, "shop-extra-1")
			images := []string{e2e.Archive(t, e2e.Web(t, "1", "")), e2e.Archive(t, e2e.Stock(t))}
			e2e.Mender(t, d, "install", e2e.Generate(t, d, "shop", "shop-1", "1", e2e.Compose("1"), images...))
			e2e.Mender(t, d, "commit")
			before := d.MustState(t)
			text := strings.Replace(e2e.Compose("1"), "services:\n", "services:\n  extra:\n    image: shop/stock:1\n    volumes: [\"slow:/slow\"]\n", 1) + "  slow: {driver: slow}\n"
			file := e2e.Generate(t, d, "shop", "shop-2", "2", text, images...)

			killed := make(chan error, 1)
			go func() {
				for held() == 0 && t.Context().Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				_, err := d.Run("pkill", "-9", "-f", kill)
				killed <- err
			}()
			said := e2e.MenderFails(t, d, "install", file)
			require.NoError(t, <-killed)
			require.Contains(t, said, "killed")
			after := d.MustState(t)
			require.Equal(t, before.Containers, after.Containers)
			require.Equal(t, before.Images, after.Images)
			d.MustRun(t, "mender-app", "resume")
			requireSame(t, after, d.MustState(t))
		})
	}
}
