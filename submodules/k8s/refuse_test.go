package k8s

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(configMap("one")))))
	before := n.get("", "ConfigMap", "one").GetResourceVersion()
	inventory := n.get("", "ConfigMap", "mender-app-"+n.ns).GetResourceVersion()
	n.load(m, n.ns, "shop-refused:1", "VERSION=v1")
	changed := strings.Replace(configMap("one"), "k: v", "k: w", 1)
	for name, c := range map[string]struct {
		doc  string
		want string
		is   error
	}{
		"yaml":            {"a: b: c", "app.yaml:6: mapping values are not allowed", submodules.ErrContent},
		"unknown field":   {strings.Replace(deployment("web", "shop-refused:1"), "imagePullPolicy", "imagePulPolicy", 1), "app.yaml:21: Deployment/web: unknown field spec.template.spec.containers", submodules.ErrContent},
		"wrong type":      {strings.Replace(configMap("two"), "k: v", "k: 1", 1), "app.yaml:", submodules.ErrContent},
		"invalid":         {strings.Replace(configMap("two"), "k: v", "'k k': v", 1), "app.yaml:", submodules.ErrContent},
		"no such kind":    {"apiVersion: x.example/v1\nkind: Thing\nmetadata: {name: x}", "app.yaml:6: Thing/x: this cluster has no kind Thing", submodules.ErrContent},
		"cluster-wide":    {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\nrules: []", "K8S_ALLOW_CLUSTER_OBJECTS", submodules.ErrContent},
		"other namespace": {strings.Replace(configMap("two"), "{name: two}", "{name: two, namespace: default}", 1), "K8S_ALLOW_NAMESPACES", submodules.ErrContent},
		"not bundled":     {deployment("web", "nowhere:1"), "app.yaml:19: Deployment/web: image nowhere:1: it is not on this node", submodules.ErrNotFound},
		"pull":            {strings.Replace(deployment("web", "nowhere:1"), "Never", "Always", 1), "imagePullPolicy Always", submodules.ErrContent},
		"latest":          {strings.Replace(deployment("web", "nowhere"), "        imagePullPolicy: Never\n", "", 1), "imagePullPolicy Always", submodules.ErrContent},
		"ours":            {configMap("mender-app-" + n.ns), "mender-app's own", submodules.ErrContent},
	} {
		t.Run(name, func(t *testing.T) {
			err := m.Rollout(ctx, n.request(n.ns, n.manifests(changed, c.doc)))
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, c.is)
			require.Equal(t, before, n.get("", "ConfigMap", "one").GetResourceVersion())
			require.Equal(t, inventory, n.get("", "ConfigMap", "mender-app-"+n.ns).GetResourceVersion())
		})
	}
	t.Run("another application's", func(t *testing.T) {
		err := m.Rollout(ctx, n.request("other", n.manifests(configMap("one"))))
		require.ErrorContains(t, err, "it belongs to the application "+n.ns)
	})
	t.Run("the cluster's namespace", func(t *testing.T) {
		set := n.set
		set.Namespace = "kube-system"
		m := caller{New(func() (Settings, error) { return set, nil })}
		require.ErrorContains(t, m.Rollout(ctx, n.request("x", n.manifests(configMap("one")))), "the cluster's own")
	})
	t.Run("a new namespace goes again", func(t *testing.T) {
		set := n.set
		set.Namespace = n.ns + "-new"
		m := caller{New(func() (Settings, error) { return set, nil })}
		require.Error(t, m.Rollout(ctx, n.request("x", n.manifests(configMap("one"), deployment("web", "nowhere:1")))))
		require.Eventually(t, func() bool {
			o, err := n.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: set.Namespace})
			return err == nil && o == nil
		}, 3*time.Minute, 100*time.Millisecond)
	})
	t.Run("a namespace on its way out", func(t *testing.T) {
		pinned := strings.Replace(configMap("held"), "{name: held}", "{name: held, finalizers: [example.com/hold]}", 1)
		require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(configMap("one"), pinned))))
		require.NoError(t, n.c.Remove(ctx, cluster.ID{Kind: "Namespace", Name: n.ns}, ""))
		n.set.TerminateFor = time.Second // it is the application's own: it is waited for
		err := m.Rollout(ctx, n.request(n.ns, n.manifests(changed)))
		require.ErrorContains(t, err, "is being deleted")
		require.NoError(t, n.c.Patch(ctx, cluster.ID{Kind: "ConfigMap", Namespace: n.ns, Name: "held"}, map[string]any{"metadata": map[string]any{"finalizers": nil}}))
	})
}
