package k8s

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// A first installation that fails leaves neither claims nor the namespace, and gives the
// volumes back. What an earlier installation left stays, with its data.
func TestFirstFails(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	data := []string{t.TempDir(), t.TempDir()}
	volume := func(i int) cluster.ID {
		return cluster.ID{Kind: "PersistentVolume", Name: fmt.Sprintf("%s-%d", n.ns, i)}
	}
	for i, dir := range data {
		require.NoError(t, os.Chmod(dir, 0o777))
		n.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %q}, "spec": {
			"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "%s-%d",
			"persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": %q}}}`, volume(i).Name, n.ns, i, dir))
		t.Cleanup(func() { n.Kubectl("delete", "pv", volume(i).Name, "--wait=false") })
	}
	phase := func(i int) any {
		o, err := n.c.Get(ctx, volume(i))
		require.NoError(t, err)
		require.NotNil(t, o)
		return n.field(o, "status.phase")
	}
	claim := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: %s-0, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}", n.ns)
	web := func(image string) string {
		return deployment("web", image, "        env: [{name: DATA, value: /data/log}]", "        volumeMounts: [{name: data, mountPath: /data}]",
			"      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]")
	}
	set := fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "shop-first:1", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: %s-1, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}`, n.ns)
	load := func() {
		n.load(m, n.ns, "shop-first:1", "VERSION=v1")
		n.load(m, n.ns, "shop-first:2", "VERSION=v2", "UNREADY=1")
	}
	load()
	good, bad := n.manifests(claim, set, web("shop-first:1")), n.manifests(claim, set, hasty(web("shop-first:2")))
	purge := func(first bool) {
		t.Helper()
		require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, bad), First: first}))
	}

	require.Error(t, m.Rollout(ctx, n.request(n.ns, bad)))
	require.Error(t, m.Rollout(ctx, n.request(n.ns, bad)), "it is resumed")
	require.NotNil(t, n.get("", "PersistentVolumeClaim", "data"))
	purge(true)
	o, err := n.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, o, "the namespace is gone")
	require.Equal(t, []any{"Available", "Available"}, []any{phase(0), phase(1)})

	// The same volumes serve the next installation, whose data then stays.
	load() // PURGE removed the images
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, good)))
	purge(false)
	load()
	kept := n.get("", "PersistentVolumeClaim", "data").GetUID()
	keptSet := n.get("", "PersistentVolumeClaim", "data-db-0").GetUID()
	require.Error(t, m.Rollout(ctx, n.request(n.ns, bad)))
	purge(true)
	require.Equal(t, kept, n.get("", "PersistentVolumeClaim", "data").GetUID())
	require.Equal(t, keptSet, n.get("", "PersistentVolumeClaim", "data-db-0").GetUID())
	require.Equal(t, []any{"Bound", "Bound"}, []any{phase(0), phase(1)})
	log, err := os.ReadFile(filepath.Join(data[0], "log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "v1\n")
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, ""), Data: true}))
}
