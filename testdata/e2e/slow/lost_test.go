package slow

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// losses are what an engine loses and what people do to it, by name, while release 1 or 2
// of the shop runs.
var losses = map[string]func(t *testing.T, d *bed.Device){
	"pruned networks": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", stopped+"; docker network prune -f")
	},
	"a lost database of networks": func(t *testing.T, d *bed.Device) {
		require.NoError(t, d.StopEngine())
		d.MustRun(t, "rm", "-f", "/var/lib/docker/network/files/local-kv.db")
		require.NoError(t, d.StartEngine())
	},
	"no containers": func(t *testing.T, d *bed.Device) { d.MustRun(t, "bash", "-ec", "docker rm -f $(docker ps -aq)") },
	"a container that is half made": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", byHand+" rm -sf stock; "+byHand+" create --pull never stock")
	},
	"paused containers": func(t *testing.T, d *bed.Device) { d.MustRun(t, "bash", "-ec", "docker pause $(docker ps -q)") },
	"tags of images": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", "docker rmi $(docker images --format '{{.Repository}}:{{.Tag}}' | grep ^shop/)")
	},
	"every name of an image whose container runs": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-c", "docker ps -q | xargs docker inspect -f '{{.Image}}' | sort -u | xargs docker image inspect -f '{{join .RepoTags \"\\n\"}}' | xargs docker rmi -f; true")
	},
	"a volume": func(t *testing.T, d *bed.Device) {
		require.NoError(t, d.StopEngine())
		d.MustRun(t, "rm", "-r", "/var/lib/docker/volumes/shop_counts")
		require.NoError(t, d.StartEngine())
	},
	"the source of a mount": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", stopped+"; source=$(docker inspect -f '{{range .Mounts}}{{if eq .Destination \"/srv/note\"}}{{.Source}}{{end}}{{end}}' shop-stock-1); test -n \"$source\"; rm -r \"$source\"")
	},
	"bridges": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", stopped+"; ip link delete docker0 || true; ip link delete br-$(docker network ls --no-trunc -q -f name=shop_default | cut -c1-12)")
	},
	firewall: func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", stopped+"; iptables -t nat -F; iptables -t nat -X; iptables -F; iptables -X")
	},
	"containers that a backup of the data root does not have": func(t *testing.T, d *bed.Device) {
		require.NoError(t, d.StopEngine())
		d.MustRun(t, "bash", "-ec", "rm -rf /var/lib/docker/containers/*")
		require.NoError(t, d.StartEngine())
	},
	"the project's name": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", byHand+" down; "+strings.Replace(byHand, "-p shop", "-p xshop", 1)+" up -d --pull never || true")
	},
	"containers whose connections are there": func(t *testing.T, d *bed.Device) {
		d.CrashEngine()
		d.MustRun(t, "bash", "-ec", "pkill -9 containerd-shim; rm -rf /var/lib/docker/containers/*")
		require.NoError(t, d.StartEngine())
	},
}

const (
	firewall = "the rules of the firewall"
	stopped  = "docker stop -t 1 shop-web-1 shop-stock-1"
	byHand   = "docker compose -p shop --project-directory /data/mender-app/shop/manifests"
)

// Whatever of losses happens, the application is updated, goes back, starts, and an
// interrupted update and mender-app reconcile end well; the client agrees.
func TestEachLossInEachWay(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.AddRestartCommand())
	d.MustRun(t, "bash", "-ec", "echo ENGINE_RESTART_COMMAND="+bed.RestartCommand+" >>/etc/mender/mender-app-docker-compose.conf")
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // as an init system does
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
				if _, err := d.RestartIfWanted(); err != nil {
					t.Errorf("restart the engine: %v", err)
				}
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended })

	policy := filepath.Join(t.TempDir(), "policy.toml")
	require.NoError(t, os.WriteFile(policy, []byte("managed = true\n[upgrades]\nfrom_unhealthy = true\n"), 0o644))
	files := map[string]string{}
	for _, v := range []string{"1", "2"} {
		manifests := t.TempDir()
		text := strings.ReplaceAll(e2e.Compose(v), "    image:", "    restart: always\n    image:")
		text = strings.Replace(text, `volumes: ["counts:/var/shop"]`, `volumes: ["counts:/var/shop", "./note:/srv/note"]`, 1)
		require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(text), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(manifests, "note"), []byte("a note\n"), 0o644))
		files[v] = e2e.AppGen(t, d, "shop-"+v, manifests, "--application-name", "shop", "--software-version", v, "--orchestrator", "docker-compose",
			"--policy", policy, e2e.Archive(t, e2e.Web(t, v, "")), e2e.Archive(t, e2e.Stock(t)))
	}
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", files["1"])
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, w, "1")

	// runs asserts that release 1 runs, under whatever name of a project: an application
	// goes on as the project that somebody made of it.
	runs := func(t *testing.T) {
		t.Helper()
		e2e.Says(t, w, "web 1")
		bed.Eventually(t, time.Minute, "the shop is healthy", func() bool {
			r, err := d.Run("mender-app", "status", "--health", "shop")
			require.NoError(t, err)
			return r.Code == 0
		})
		d.MustRun(t, "bash", "-ec", "docker ps -q --filter label=com.docker.compose.project=xshop | xargs -r docker rm -f")
		d.MustRun(t, "mender-app", "start", "shop")
		e2e.Settled(t, d, w, "1")
	}
	for _, name := range slices.Sorted(maps.Keys(losses)) {
		lose := losses[name]
		if t.Failed() {
			return // what comes after it would say nothing
		}
		t.Run(name, func(t *testing.T) {
			t.Run("update and rollback", func(t *testing.T) {
				lose(t, d)
				if name == firewall {
					// An update does not restart an engine that others may use. Going back does.
					require.Contains(t, e2e.MenderFails(t, d, "install", files["2"]), "the engine's rules of the firewall are gone: restart the engine")
					runs(t)
				}
				e2e.Mender(t, d, "install", files["2"])
				e2e.Says(t, w, "web 2")
				lose(t, d)
				e2e.Mender(t, d, "rollback")
				runs(t)
			})
			t.Run("start", func(t *testing.T) {
				lose(t, d)
				d.MustRun(t, "mender-app", "start", "shop")
				runs(t)
			})
			t.Run("resume", func(t *testing.T) {
				e2e.Killed(t, d, "app ArtifactInstall/call.ROLLOUT:1", "install", files["2"])
				lose(t, d)
				d.MustRun(t, "mender-app", "resume")
				runs(t)
			})
			t.Run("reconcile", func(t *testing.T) {
				lose(t, d)
				d.MustRun(t, "mender-app", "reconcile")
				runs(t)
			})
		})
	}
}
