package k8s

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

func TestTwoApplications(t *testing.T) {
	t.Parallel()
	a, b := newNode(t), newNode(t)
	ctx := context.Background()
	ma, mb := a.module(), b.module()
	require.NoError(t, ma.Rollout(ctx, a.request("a", a.manifests(configMap("same")))))
	require.NoError(t, mb.Rollout(ctx, b.request("b", b.manifests(configMap("same")))))
	require.NoError(t, ma.Purge(ctx, submodules.PurgeRequest{Request: a.request("a", "")}))
	require.Nil(t, a.get("", "ConfigMap", "same"))
	require.NotNil(t, b.get("", "ConfigMap", "same"))
	_, err := b.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: b.ns})
	require.NoError(t, err)

	t.Log("a namespace that others use stays, and what was there before")
	other := cluster.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "mine"}
	mp, err := b.c.Mapping(ctx, "", "ConfigMap", "v1")
	require.NoError(t, err)
	_, err = b.c.Apply(ctx, mp, other, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"}}`))
	require.NoError(t, err)
	kept := strings.Replace(configMap("kept"), "{name: kept}", `{name: kept, annotations: {mender-app.io/keep: "true"}}`, 1)
	require.NoError(t, mb.Rollout(ctx, b.request("b", b.manifests(configMap("mine"), configMap("same"), kept))))
	require.NoError(t, mb.Purge(ctx, submodules.PurgeRequest{Request: b.request("b", "")}))
	require.Nil(t, b.get("", "ConfigMap", "same"))
	require.NotNil(t, b.get("", "ConfigMap", "kept"))
	mine := b.get("", "ConfigMap", "mine")
	require.NotNil(t, mine)
	require.Empty(t, mine.GetLabels()[marks.App])
}

// TestPurgeWithoutInventory: the first ROLLOUT may be killed right after it
// created the namespace.
func TestPurgeWithoutInventory(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	s, err := m.open(ctx, submodules.VerbHealthy, n.request("early", ""))
	require.NoError(t, err)
	created, err := s.ensureNamespace(ctx, "early", n.ns)
	require.NoError(t, err)
	require.True(t, created)
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request("early", "")}))
	o, err := n.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, o)
}

// TestSameNameElsewhere: another device that shares the cluster has an
// application of the same name.
func TestSameNameElsewhere(t *testing.T) {
	t.Parallel()
	a, b := newNode(t), newNode(t)
	ctx := context.Background()
	ma, mb := a.module(), b.module()
	require.NoError(t, ma.Rollout(ctx, a.request("same", a.manifests(configMap("theirs")))))
	require.NoError(t, a.c.Patch(ctx, inventoryID("same", a.ns), map[string]any{"data": map[string]any{"device": "another"}}))
	require.NoError(t, mb.Rollout(ctx, b.request("same", b.manifests(configMap("ours")))))
	all := b.request("same", "")
	require.NoError(t, mb.Purge(ctx, submodules.PurgeRequest{Request: all, Data: true}))
	require.NotNil(t, a.get("", "ConfigMap", "theirs"))
	require.NoError(t, ma.Purge(ctx, submodules.PurgeRequest{Request: a.request("same", "")}))

	t.Log("and one of this device's moves")
	require.NoError(t, ma.Rollout(ctx, a.request("moves", a.manifests(configMap("it")))))
	require.NoError(t, mb.Rollout(ctx, b.request("moves", b.manifests(configMap("it")))))
	require.Nil(t, a.get("", "ConfigMap", "it"))
	require.NotNil(t, b.get("", "ConfigMap", "it"))
	require.NoError(t, mb.Purge(ctx, submodules.PurgeRequest{Request: b.request("moves", "")}))
}

// TestManyObjects: what is there already is not sent again, however much it is.
// What it costs is in docs/BENCHMARKS.md.
func TestManyObjects(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	docs := make([]string, 200)
	for i := range docs {
		docs[i] = configMap(fmt.Sprint("c", i))
	}
	versions := func() map[string]string {
		list, err := n.c.List(ctx, "", "ConfigMap", n.ns, marks.App+"="+n.ns+",!"+marks.Inventory) // not the inventory itself
		require.NoError(t, err)
		require.Len(t, list, len(docs))
		all := map[string]string{}
		for i := range list {
			all[list[i].GetName()] = list[i].GetResourceVersion()
		}
		return all
	}
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(docs...))))
	first := versions()
	docs[7] = strings.Replace(docs[7], "k: v", "k: w", 1)
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(docs...))))
	second := versions()
	require.NotEqual(t, first["c7"], second["c7"])
	delete(first, "c7")
	delete(second, "c7")
	require.Equal(t, first, second)
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
}
