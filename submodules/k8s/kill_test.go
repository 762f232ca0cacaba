package k8s

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store/durable/faults"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// command is a call of the sub-module as a process of its own.
func (n *node) command(env []string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(n.t, err)
	conf := n.t.TempDir()
	require.NoError(n.t, os.WriteFile(filepath.Join(conf, ConfigName), []byte("K8S_HEALTH_TIMEOUT=240\nK8S_STABLE_TIME=1\nK8S_TERMINATE_TIMEOUT=180\n"), 0o644))
	cmd := exec.Command(exe, args...)
	cmd.Env = append([]string{
		asProgram + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + n.t.TempDir(), submodules.EnvConfigDir + "=" + conf,
		"KUBECONFIG=" + n.set.Kubeconfig, "CONTAINERD_ADDRESS=" + n.set.Containerd, "K8S_NAMESPACE=" + n.ns,
	}, env...)
	return cmd
}

// killed runs a call that kills itself at a fault point, such as
// rollout.apply:2.
func (n *node) killed(point string, stdin []byte, args ...string) {
	n.t.Helper()
	n.killedWith(nil, point, stdin, args...)
}

// killedWith is killed, with variables of the environment.
func (n *node) killedWith(env []string, point string, stdin []byte, args ...string) {
	n.t.Helper()
	cmd := n.command(append(env, faults.Env+"="+point+":kill"), args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.Error(n.t, err, "%s %s ended well: it does not pass the point\n%s", args[0], point, out)
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(n.t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%s: %v\n%s", point, err, out)
}

// passed runs a call to its end and returns the fault points it passed, each
// with a count, in order.
func (n *node) passed(stdin []byte, args ...string) []string {
	n.t.Helper()
	trace := filepath.Join(n.t.TempDir(), "trace")
	cmd := n.command([]string{faults.TraceEnv + "=" + trace}, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(n.t, err, "%s", out)
	text, err := os.ReadFile(trace)
	require.NoError(n.t, err)
	count := map[string]int{}
	var points []string
	for _, name := range strings.Fields(string(text)) {
		count[name]++
		points = append(points, fmt.Sprintf("%s:%d", name, count[name]))
	}
	return points
}

// TestKilled kills the sub-module at every fault point of every verb that
// changes anything, and holds that the same verb again, or the way back, then
// settles the matter.
func TestKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	n.load(m, "shop", "shop-kill:1", "VERSION=v1")
	n.load(m, "shop", "shop-kill:2", "VERSION=v2")
	v1 := n.manifests(deployment("web", "shop-kill:1"), configMap("one"), configMap("both"))
	v2 := n.manifests(deployment("web", "shop-kill:2"), configMap("two"), configMap("both"))

	// at returns an application of its own, called as its namespace is, in the
	// first release, and what holds that it is in one release alone.
	at := func(t *testing.T) (n *node, m caller, settled func(version string)) {
		n = newNode(t)
		m = n.module()
		require.NoError(t, m.Rollout(ctx, n.request(n.ns, v1)))
		return n, m, func(version string) {
			t.Helper()
			require.Equal(t, version, n.answer("web"))
			require.Equal(t, version == "v1", n.get("", "ConfigMap", "one") != nil)
			require.Equal(t, version == "v2", n.get("", "ConfigMap", "two") != nil)
			ok, err := m.Healthy(ctx, n.request(n.ns, ""))
			require.NoError(t, err)
			require.True(t, ok, n.log())
			inv, err := loadInventory(ctx, n.c, n.ns, n.ns)
			require.NoError(t, err)
			require.Len(t, inv.Items, 3)
		}
	}
	traced, _, _ := at(t)
	app := traced.ns
	rollout := traced.passed(nil, "ROLLOUT", app, v2)
	for _, p := range []string{"rollout.checked:1", "rollout.apply:2", "rollout.healthy:1", "remove.object:1", "rollout.narrowed:1"} {
		require.Contains(t, rollout, p)
	}
	stop := traced.passed(nil, "STOP", app, v2)
	start := traced.passed(nil, "START", app, v2)
	three := n.manifests(configMap("a"), configMap("b"), configMap("c"))
	require.NoError(t, traced.module().Rollout(ctx, traced.request(app, three)))
	purge := traced.passed(nil, "PURGE", app)
	require.Contains(t, stop, "stop.object:1")
	require.Contains(t, start, "start.object:1")
	require.Contains(t, purge, "remove.object:3")

	t.Run("group", func(t *testing.T) { // returns when all in it have ended
		for i, p := range rollout {
			t.Run("ROLLOUT/"+p, func(t *testing.T) {
				t.Parallel()
				n, m, settled := at(t)
				n.killed(p, nil, "ROLLOUT", n.ns, v2)
				if i%2 == 0 {
					require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: n.request(n.ns, v1)}))
					settled("v1")
				} else {
					require.NoError(t, m.Rollout(ctx, n.request(n.ns, v2)))
					settled("v2")
				}
			})
		}
		// It walks the same steps.
		for _, p := range []string{"rollout.apply:2", "rollout.healthy:1", "remove.object:1", "rollout.narrowed:1"} {
			t.Run("ROLLBACK/"+p, func(t *testing.T) {
				t.Parallel()
				n, m, settled := at(t)
				n.killed("rollout.pruned:1", nil, "ROLLOUT", n.ns, v2)
				n.killed(p, nil, "ROLLBACK", n.ns, v1, v2)
				require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: n.request(n.ns, v1)}))
				settled("v1")
			})
		}
		t.Run("STOP and START", func(t *testing.T) {
			t.Parallel()
			n, m, settled := at(t)
			for _, p := range stop {
				n.killed(p, nil, "STOP", n.ns, v1)
				require.NoError(t, m.Start(ctx, n.request(n.ns, v1)))
				settled("v1")
			}
			for _, p := range start {
				require.NoError(t, m.Stop(ctx, submodules.StopRequest{Request: n.request(n.ns, v1)}))
				require.Empty(t, n.pods("web"))
				n.killed(p, nil, "START", n.ns, v1)
				require.NoError(t, m.Start(ctx, n.request(n.ns, v1)))
				settled("v1")
			}
		})
		for _, p := range purge {
			t.Run("PURGE/"+p, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				m := n.module()
				require.NoError(t, m.Rollout(ctx, n.request(n.ns, three)))
				n.killed(p, nil, "PURGE", n.ns)
				require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
				o, err := n.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: n.ns})
				require.NoError(t, err)
				require.Nil(t, o)
			})
		}
	})
}

// TestLoadKilled kills a LOAD half-way through its content and at its fault
// points, and a DELETE: nothing half is ever listed, and the next call does it
// all.
func TestLoadKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	const app, url = "killed", "shop-load:1"
	img := n.Image(t, "probe:any", nil, "RUN="+n.ns)
	request := func(url string) submodules.Request {
		r := n.request(app, "")
		r.Components = []submodules.Component{component(url, img)}
		return r
	}
	whole := func() {
		t.Helper()
		require.NoError(t, m.Load(ctx, submodules.LoadRequest{Request: request(url), URL: url, Path: "-", Stdin: bytes.NewReader(img.Archive)}))
		problems, err := m.Verify(ctx, request(url))
		require.NoError(t, err)
		require.Empty(t, problems)
	}
	gone := func() {
		t.Helper()
		require.NoError(t, m.Delete(ctx, submodules.DeleteRequest{Request: request(url + "@" + img.Config.String()), URL: url + "@" + img.Config.String()}))
		list, err := m.List(ctx, request(""))
		require.NoError(t, err)
		require.Empty(t, list)
	}
	t.Run("half-way", func(t *testing.T) {
		cmd := n.command(nil, "LOAD", app, url, "-")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = io.Copy(in, bytes.NewReader(img.Archive[:len(img.Archive)/2]))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		list, err := m.List(ctx, request(""))
		require.NoError(t, err)
		require.Empty(t, list)
		whole()
		gone()
	})
	points := n.passed(img.Archive, "LOAD", app, url, "-")
	require.True(t, slices.Contains(points, "load.received:1"), points)
	gone()
	for _, p := range points {
		t.Run(p, func(t *testing.T) {
			n.killed(p, img.Archive, "LOAD", app, url, "-")
			whole()
			gone()
		})
	}
	whole()
	for _, p := range n.passed(nil, "DELETE", url+"@"+img.Config.String(), app) {
		t.Run(p, func(t *testing.T) {
			whole()
			n.killed(p, nil, "DELETE", url+"@"+img.Config.String(), app)
			gone()
		})
	}
}

// TestReadingKilled kills the verbs that change nothing, at once and a little
// later: nothing has changed, and the same call again does its work.
func TestReadingKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	ref := "shop-reading-" + n.ns + ":1"
	c := n.load(m, n.ns, ref, "VERSION=v1", n.ns)
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(deployment("web", ref), configMap("one")))))
	everything := func() string {
		d := n.get("apps", "Deployment", "web")
		return fmt.Sprint(d.GetUID(), d.GetGeneration(), n.pods("web")[0].Metadata.UID, n.get("", "ConfigMap", "one").GetResourceVersion(),
			n.get("", "ConfigMap", "mender-app-"+n.ns).GetResourceVersion())
	}
	before := everything()
	components := filepath.Join(t.TempDir(), "components.json")
	require.NoError(t, os.WriteFile(components, fmt.Appendf(nil, `[{"type":"image","url":%q,"digest":%q}]`, ref, c.Digest), 0o600))
	out := t.TempDir()
	for _, args := range [][]string{
		{"PROTOCOL"}, {"REQS"}, {"LIST", n.ns}, {"LS_COMPONENTS", n.ns}, {"ALIVE", n.ns}, {"HEALTHY", n.ns}, {"VERIFY", n.ns}, {"SYNC", n.ns}, {"STORAGE", n.ns},
		{"EXPORT_MANIFEST", n.ns, filepath.Join(out, "manifests")}, {"SAVE", n.ns, ref, filepath.Join(out, "image")},
	} {
		t.Run(args[0], func(t *testing.T) {
			env := []string{submodules.EnvComponents + "=" + components}
			for _, later := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond} {
				cmd := n.command(env, args...)
				require.NoError(t, cmd.Start())
				time.Sleep(later)
				_ = cmd.Process.Kill() // or it was quicker
				_ = cmd.Wait()
			}
			said, err := n.command(env, args...).CombinedOutput()
			require.NoError(t, err, "%s", said)
		})
	}
	require.FileExists(t, filepath.Join(out, "manifests/app.yaml"))
	require.Equal(t, before, everything())
	require.Equal(t, "v1", n.answer("web"))
}
