//go:build k8snode

package k8s

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// asProgram makes the test binary the sub-module itself.
const asProgram = "MENDER_APP_TEST_K8S_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		mod := New(func() (Settings, error) { return ReadSettings(os.Getenv) })
		code := submodules.Main(mod, Name, "test", os.Args[1:])
		_ = mod.Close()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// command is a call of the sub-module as a process of its own.
func (n *node) command(args ...string) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(n.t, err)
	conf := n.t.TempDir()
	require.NoError(n.t, os.WriteFile(filepath.Join(conf, ConfigName), []byte("K8S_HEALTH_TIMEOUT=60\nK8S_STABLE_TIME=1\n"), 0o644))
	cmd := exec.Command(exe, args...)
	cmd.Env = []string{
		asProgram + "=1", "PATH=" + os.Getenv("PATH"), submodules.EnvConfigDir + "=" + conf,
		"KUBECONFIG=" + n.set.Kubeconfig, "CONTAINERD_ADDRESS=" + n.set.Containerd, "K8S_NAMESPACE=" + n.ns,
	}
	return cmd
}

// killed starts a call and kills it after a while; it tells whether the call
// had ended before.
func (n *node) killed(after time.Duration, stdin []byte, args ...string) (ended bool) {
	n.t.Helper()
	cmd := n.command(args...)
	cmd.Stdin = bytes.NewReader(stdin)
	require.NoError(n.t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
		return true
	case <-time.After(after):
		require.NoError(n.t, cmd.Process.Kill())
		<-done
		return false
	}
}

// TestKill kills the sub-module in the middle of every verb, at growing times,
// and holds that the same verb, or the way back, then settles the matter.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	n.load(m, "shop", "shop-kill:1", "VERSION=v1")
	n.load(m, "shop", "shop-kill:2", "VERSION=v2")
	dirs := map[string]string{
		"v1": n.manifests(deployment("web", "shop-kill:1"), configMap("one"), configMap("both")),
		"v2": n.manifests(deployment("web", "shop-kill:2"), configMap("two"), configMap("both")),
	}
	settled := func(version string) {
		t.Helper()
		require.Equal(t, version, n.answer("web"))
		require.Equal(t, version == "v1", n.get("", "ConfigMap", "one") != nil)
		require.Equal(t, version == "v2", n.get("", "ConfigMap", "two") != nil)
		ok, err := m.Healthy(ctx, n.request("shop", ""))
		require.NoError(t, err)
		require.True(t, ok, n.log())
	}
	require.NoError(t, m.Rollout(ctx, n.request("shop", dirs["v1"])))
	times := []time.Duration{20, 60, 120, 250, 500, 1000, 2000, 3500, 5000}
	for i, ms := range times {
		after := ms * time.Millisecond
		n.killed(after, nil, "ROLLOUT", "shop", dirs["v2"])
		if i%2 == 0 {
			require.NoError(t, m.Rollback(ctx, n.request("shop", dirs["v1"])), "after a ROLLOUT killed at %s", after)
			settled("v1")
			continue
		}
		require.NoError(t, m.Rollout(ctx, n.request("shop", dirs["v2"])), "after a ROLLOUT killed at %s", after)
		settled("v2")
		n.killed(after, nil, "ROLLBACK", "shop", dirs["v1"], dirs["v2"])
		require.NoError(t, m.Rollback(ctx, n.request("shop", dirs["v1"])), "after a ROLLBACK killed at %s", after)
		settled("v1")
	}
	for _, ms := range times[:6] {
		after := ms * time.Millisecond
		n.killed(after, nil, "STOP", "shop", dirs["v1"])
		require.NoError(t, m.Start(ctx, n.request("shop", dirs["v1"])), "after a STOP killed at %s", after)
		settled("v1")
		require.NoError(t, m.Stop(ctx, n.request("shop", dirs["v1"])))
		n.killed(after, nil, "START", "shop", dirs["v1"])
		require.NoError(t, m.Start(ctx, n.request("shop", dirs["v1"])), "after a START killed at %s", after)
		settled("v1")
	}
	for i, ms := range times[:6] {
		after := ms * time.Millisecond
		url := fmt.Sprintf("shop-kill:load-%d", i)
		img, data := n.archive(fmt.Sprint("N=", i))
		n.killed(after, data, "LOAD", "shop", url, "-")
		r := n.request("shop", "")
		r.URL, r.Path, r.Stdin = url, "-", bytes.NewReader(data)
		require.NoError(t, m.Load(ctx, r), "after a LOAD killed at %s", after)
		r.Components = []submodules.Component{{Type: "image", URL: url, Digest: img.ConfigDigest.String()}}
		problems, err := m.Verify(ctx, r)
		require.NoError(t, err)
		require.Empty(t, problems)
		n.killed(after, nil, "DELETE", url+"@"+img.ConfigDigest.String(), "shop")
		r.URL += "@" + img.ConfigDigest.String()
		require.NoError(t, m.Delete(ctx, r))
		list, err := m.List(ctx, r)
		require.NoError(t, err)
		for _, c := range list {
			require.NotEqual(t, img.ConfigDigest.String(), c.Digest)
		}
	}
	n.killed(200*time.Millisecond, nil, "PURGE", "shop")
	require.NoError(t, m.Purge(ctx, n.request("shop", "")))
	o, err := n.c.get(ctx, id{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, o)
}
