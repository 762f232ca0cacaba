package k8s

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// TestFieldManager: what an earlier version applied as the shared manager goes
// over to the application's, so that a field that a release drops is gone.
func TestFieldManager(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ctx := context.Background()
	m := n.module()
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(configMap("first")))))
	mapping, err := n.c.Mapping(ctx, "", "ConfigMap", "v1")
	require.NoError(t, err)
	old := cluster.ID{Kind: "ConfigMap", Namespace: n.ns, Name: "old"}
	_, err = n.c.ApplyAs(ctx, mapping, old, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"old","labels":{"mender-app.io/app":"`+n.ns+`"}},"data":{"k":"v","dropped":"x"}}`),
		metav1.PatchOptions{FieldManager: cluster.SharedManager})
	require.NoError(t, err)

	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(configMap("first"), configMap("old")))))
	o := n.get("", "ConfigMap", "old")
	require.Equal(t, map[string]any{"k": "v"}, o.Object["data"])
	require.False(t, cluster.Applied(o, cluster.SharedManager))
	require.True(t, cluster.Applied(o, n.c.Manager))
	require.Equal(t, "mender-app-"+n.ns, n.c.Manager)
}
