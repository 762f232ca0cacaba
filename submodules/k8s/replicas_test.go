package k8s

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// A ReplicaSet without a Deployment and a ReplicationController do not replace their pods: a
// ROLLOUT replaces them, and waits for all pods of the new ones.
func TestBareReplicas(t *testing.T) {
	n := newNode(t)
	m, ctx := n.module(), t.Context()
	n.load(m, n.ns, "shop-bare:1", "VERSION=v1")
	n.load(m, n.ns, "shop-bare:2", "VERSION=v2")
	set := `apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: set}
spec:
  replicas: 1
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "shop-bare:1", imagePullPolicy: Never}]}`
	control := strings.ReplaceAll(strings.NewReplacer("apps/v1", "v1", "ReplicaSet", "ReplicationController", "{matchLabels: {app: set}}", "{app: control}").Replace(set), "set}", "control}")
	rollout := func(docs ...string) error { return m.Rollout(ctx, n.request(n.ns, n.manifests(docs...))) }
	require.NoError(t, rollout(set, control))
	old := n.get("", "ReplicationController", "control").GetUID()
	require.EqualValues(t, int64(1), n.field(n.get("", "ReplicationController", "control"), "status.readyReplicas"))

	second := func(doc string) string { return strings.Replace(doc, "shop-bare:1", "shop-bare:2", 1) }
	require.NoError(t, rollout(second(set), second(control)))
	require.NotEqual(t, old, n.get("", "ReplicationController", "control").GetUID())
	for _, name := range []string{"set", "control"} {
		pods := n.pods(name)
		require.Len(t, pods, 1, name)
	}
	// One whose pods do not become ready is not healthy.
	err := rollout(second(set), strings.Replace(second(control), "imagePullPolicy: Never", "imagePullPolicy: Never, command: [/none]", 1))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
}
