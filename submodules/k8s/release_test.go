package k8s

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	v1 := n.load(m, n.ns, "shop-web:1", "VERSION=v1")
	first := n.manifests(deployment("web", "shop-web:1"), configMap("old"), configMap("both"))
	r := n.request(n.ns, first)
	r.Components = []submodules.Component{v1}
	require.NoError(t, m.Rollout(ctx, r))
	require.Equal(t, "v1", n.answer("web"))
	for name, ask := range map[string]func(context.Context, submodules.Request) (bool, error){"alive": m.Alive, "healthy": m.Healthy} {
		ok, err := ask(ctx, n.request(n.ns, ""))
		require.NoError(t, err)
		require.True(t, ok, name)
	}
	before := n.pods("web")[0].Metadata.UID

	t.Log("the same release again restarts nothing")
	require.NoError(t, m.Rollout(ctx, r))
	require.Equal(t, before, n.pods("web")[0].Metadata.UID)

	t.Log("an update without a gap; what is dropped goes")
	n.load(m, n.ns, "shop-web:2", "VERSION=v2")
	second := n.manifests(deployment("web", "shop-web:2"), configMap("both"), configMap("new"))
	stop := n.Watch(n.ns, "web")
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, second)))
	asked, failed := stop()
	require.Positive(t, asked)
	require.Zero(t, failed, "of %d", asked)
	require.Equal(t, "v2", n.answer("web"))
	require.Nil(t, n.get("", "ConfigMap", "old"))
	require.NotNil(t, n.get("", "ConfigMap", "both"))
	set := n.pods("web")[0].Metadata.OwnerReferences[0].UID

	t.Log("a release that never gets ready, and the way back to the old ReplicaSet")
	n.load(m, n.ns, "shop-web:3", "VERSION=v3", "UNREADY=1")
	// Time enough for the pod to say what is wrong.
	later := strings.Replace(deployment("web", "shop-web:3"), "progressDeadlineSeconds: 180", "progressDeadlineSeconds: 15", 1)
	third := n.manifests(later, configMap("third"))
	stop = n.Watch(n.ns, "web")
	err := m.Rollout(ctx, n.request(n.ns, third))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.ErrorContains(t, err, "Deployment/web")
	require.ErrorContains(t, err, "probe v3 listens", "the pod's log")
	require.ErrorContains(t, err, "Readiness probe failed", "its events")
	require.NotNil(t, n.get("", "ConfigMap", "new"), "nothing is pruned before the release is healthy")
	require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: n.request(n.ns, second), FailedDir: third}))
	_, failed = stop()
	require.Zero(t, failed)
	require.Equal(t, set, n.pods("web")[0].Metadata.OwnerReferences[0].UID)
	require.Nil(t, n.get("", "ConfigMap", "third"))

	t.Log("one that crashes fails early, with what it said")
	n.load(m, n.ns, "shop-web:4", "VERSION=v4", "EXIT=3")
	began := time.Now()
	err = m.Rollout(ctx, n.request(n.ns, n.manifests(deployment("web", "shop-web:4"))))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.ErrorContains(t, err, "CrashLoopBackOff")
	require.ErrorContains(t, err, "probe v4 exits with status 3")
	t.Logf("found after %s: %v", time.Since(began).Round(100*time.Millisecond), err)
	require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: n.request(n.ns, second)}))
	require.Equal(t, "v2", n.answer("web"))

	t.Log("what was shipped comes back")
	out := filepath.Join(t.TempDir(), "out")
	require.NoError(t, m.ExportManifest(ctx, n.request(n.ns, out)))
	want, err := os.ReadFile(filepath.Join(second, "app.yaml"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(out, "app.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))

	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
	o, err := n.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, o, "the namespace was made for the application, and is empty")
	ok, err := m.Alive(ctx, n.request(n.ns, ""))
	require.NoError(t, err)
	require.False(t, ok)
	list, err := m.List(ctx, n.request(n.ns, ""))
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestServerDown(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(configMap("one")))))
	start := n.KillServer(t)

	set := n.set
	set.Connect = time.Second
	down := caller{New(func() (Settings, error) { return set, nil })}
	err := down.Rollout(ctx, n.request(n.ns, n.manifests(configMap("two"))))
	require.ErrorContains(t, err, "does not answer; is the cluster running?")
	require.ErrorIs(t, err, submodules.ErrRequirement)

	n.set.Connect = 4 * time.Minute
	done := make(chan error, 1)
	go func() { done <- m.Rollout(ctx, n.request(n.ns, n.manifests(configMap("two")))) }()
	require.Eventually(t, func() bool { return strings.Contains(n.log(), "does not answer, trying on") }, time.Minute, 50*time.Millisecond)
	start()
	require.NoError(t, <-done)
	require.Contains(t, n.log(), "answers again")
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
}
