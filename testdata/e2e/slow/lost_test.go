package slow

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
	"files of the release": inReleases("rm manifests/{.env,web.env,shop.conf,note,key}"),
	"the compose file":     inReleases("rm manifests/docker-compose.yml"),
	"the content of files": inReleases("truncate -s 0 manifests/* release.json"),
	"every manifest":       inReleases("rm -r manifests"),
	"what a release is":    inReleases("rm release.json"),
	"a part of a file":     inReleases("echo ] | tee manifests/docker-compose.yml >release.json"),
	"the link to the manifests": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "rm", "/data/mender-app/shop/manifests")
	},
	"the state of the application": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "rm", "/data/mender-app/shop/app.json")
	},
	"all but the state, which is damaged": func(t *testing.T, d *bed.Device) {
		inReleases("rm -r manifests release.json")(t, d)
		d.MustRun(t, "bash", "-ec", "cd /data/mender-app/shop; rm manifests; echo x >app.json")
	},
	"copies of mounted files": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "rm", "-r", "/data/mender-app/shop/mounts")
	},
	"files of the copies": func(t *testing.T, d *bed.Device) {
		d.MustRun(t, "bash", "-ec", "find /data/mender-app/shop/mounts -type f | xargs rm")
	},
	"containers whose connections are there": func(t *testing.T, d *bed.Device) {
		d.CrashEngine()
		d.MustRun(t, "bash", "-ec", "pkill -9 containerd-shim; rm -rf /var/lib/docker/containers/*")
		require.NoError(t, d.StartEngine())
	},
}

// inReleases runs a command in the directory of each release of the shop.
func inReleases(command string) func(t *testing.T, d *bed.Device) {
	return func(t *testing.T, d *bed.Device) {
		t.Helper()
		d.MustRun(t, "bash", "-ec", "for r in /data/mender-app/shop/releases/*/; do cd $r; "+command+"; done")
	}
}

const (
	firewall = "the rules of the firewall"
	stopped  = "docker stop -t 1 shop-web-1 shop-stock-1"
	byHand   = "docker compose -p shop --project-directory /data/mender-app/shop/manifests"
)

// shipped are the manifests of a release of the shop, with files of each kind.
func shipped(v string) map[string]string {
	text := strings.ReplaceAll(e2e.Compose(v), "    image:", "    restart: always\n    image:")
	text = strings.Replace(text, `volumes: ["counts:/var/shop"]`, `volumes: ["counts:/var/shop", "./note:/srv/note"]`, 1)
	text = strings.Replace(text, "    stop_grace_period: 2s\n", "    stop_grace_period: 2s\n    env_file: web.env\n    configs: [shop]\n    secrets: [key]\n    environment: {SEASON: \"$SEASON\"}\n", 1)
	return map[string]string{
		"docker-compose.yml": text + "configs:\n  shop: {file: ./shop.conf}\nsecrets:\n  key: {file: ./key}\n",
		".env":               "SEASON=winter " + v + "\n",
		"web.env":            "COLOUR=white " + v + "\n",
		"shop.conf":          "open = " + v + "\n",
		"note":               "a note\n",
		"key":                "key " + v + "\n",
	}
}

// shippedFiles are the artifacts of two releases of the shop, by version.
func shippedFiles(t *testing.T, d *bed.Device) map[string]string {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "policy.toml")
	require.NoError(t, os.WriteFile(policy, []byte("managed = true\n[upgrades]\nfrom_unhealthy = true\n"), 0o644))
	files := map[string]string{}
	for _, v := range []string{"1", "2"} {
		manifests := t.TempDir()
		for name, text := range shipped(v) {
			require.NoError(t, os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o644))
		}
		files[v] = e2e.AppGen(t, d, "shop-"+v, manifests, "--application-name", "shop", "--software-version", v, "--orchestrator", "docker-compose",
			"--policy", policy, e2e.Archive(t, e2e.Web(t, v, "")), e2e.Archive(t, e2e.Stock(t)))
	}
	return files
}

// Whatever of losses happens, the application is updated, goes back, starts, and an
// interrupted update and mender-app reconcile end well; the client agrees. MENDER_APP_LOSS is
// an expression for the names of those that are tried.
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

	files := shippedFiles(t, d)
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
	settled := runs
	runs = func(t *testing.T) {
		t.Helper()
		settled(t)
		for name, text := range shipped("1") {
			require.Equal(t, text, d.MustRun(t, "cat", "/data/mender-app/shop/manifests/"+name), name)
		}
		for _, mount := range []string{"web-1 /shop", "web-1 /run/secrets/key", "stock-1 /srv/note"} {
			service, to, _ := strings.Cut(mount, " ")
			source := strings.TrimSpace(d.MustRun(t, "docker", "inspect", "-f", `{{range .Mounts}}{{if eq .Destination "`+to+`"}}{{.Source}}{{end}}{{end}}`, "shop-"+service))
			text := map[string]string{"/shop": "open = 1\n", "/run/secrets/key": "key 1\n", "/srv/note": "a note\n"}[to]
			require.Equal(t, text, d.MustRun(t, "cat", source), mount)
		}
	}
	chosen := regexp.MustCompile("^(" + cmp.Or(os.Getenv("MENDER_APP_LOSS"), ".*") + ")$")
	for _, name := range slices.Sorted(maps.Keys(losses)) {
		lose := losses[name]
		if !chosen.MatchString(name) {
			continue
		}
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

// What a release has lost for good keeps it from starting, with an error that says what to do.
// Another release can be installed, and so can the same one. Going back fails, and then the
// new release goes on.
func TestLostForGood(t *testing.T) {
	d := e2e.Device(t)
	files := shippedFiles(t, d)
	w := e2e.Watch(t, d)
	status := func() string {
		r, err := d.Run("mender-app", "status", "shop")
		require.NoError(t, err)
		return r.Output()
	}
	for name, c := range map[string]struct{ lose, says string }{
		"a release":            {"rm -r releases/$(basename $(dirname $(readlink manifests)))", "its files are gone"},
		"a file and its copy":  {"cd $(readlink -f manifests)/..; echo x >copy.tar.gz; rm manifests/web.env", "web.env"},
		"its copy, and itself": {"cd $(readlink -f manifests)/..; rm copy.tar.gz; rm manifests/docker-compose.yml", "no compose file in"},
		"its images":           {"docker rm -f $(docker ps -aq); docker images -q shop/web | xargs -r docker rmi -f", "shop/web:1"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, next := range []string{"1", "2"} {
				e2e.Mender(t, d, "install", files["1"])
				e2e.Mender(t, d, "commit")
				e2e.Says(t, w, "web 1")
				d.MustRun(t, "bash", "-ec", "cd /data/mender-app/shop; "+c.lose)
				r, err := d.Run("mender-app", "start", "shop")
				require.NoError(t, err)
				require.NotZero(t, r.Code, r.Output())
				require.Contains(t, r.Output(), c.says)
				require.Contains(t, r.Output(), "mender-app install")

				e2e.Mender(t, d, "install", files[next])
				e2e.Says(t, w, "web "+next)
				if next == "2" {
					e2e.MenderFails(t, d, "rollback")
					r, err := d.Run("mender-app", "resume")
					require.NoError(t, err)
					require.NotZero(t, r.Code)
					require.Contains(t, r.Output(), "mender-app install")
					require.Contains(t, status(), "mender-app resume tries again, and any release can be installed over it (mender-app install FILE)")
					e2e.Says(t, w, "web 2")
					e2e.Mender(t, d, "install", files[next])
				}
				e2e.Mender(t, d, "commit")
				e2e.Says(t, w, "web "+next)
				d.MustProvide(t, e2e.Provides(next))
				d.MustRun(t, "mender-app", "health", "shop")
			}
		})
	}
	t.Run("an image that comes back", func(t *testing.T) {
		e2e.Mender(t, d, "install", files["1"])
		e2e.Mender(t, d, "commit")
		e2e.Mender(t, d, "install", files["2"])
		d.MustRun(t, "bash", "-ec", "docker save -o /tmp/image shop/web:1; docker images --no-trunc -q shop/web:1 | xargs docker rmi -f")
		e2e.MenderFails(t, d, "rollback")
		d.MustRun(t, "docker", "load", "-q", "-i", "/tmp/image")
		r, err := d.Run("mender-app", "resume")
		require.NoError(t, err)
		require.Zero(t, r.Code, r.Output())
		const says = "the Mender client calls the device shop-2_INCONSISTENT since a rollback failed: the next artifact that the client installs ends that"
		require.Contains(t, r.Output(), says)
		require.Contains(t, status(), says)
		e2e.Says(t, w, "web 1")
		e2e.Mender(t, d, "install", files["2"])
		e2e.Mender(t, d, "commit")
		e2e.Settled(t, d, w, "2")
		require.NotContains(t, status(), "INCONSISTENT")
	})
}
