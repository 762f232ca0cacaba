package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

func TestData(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	data := t.TempDir()
	require.NoError(t, os.Chmod(data, 0o777))
	// The cluster has no provisioner: an operator made the volume.
	pv, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": n.ns},
		"spec": map[string]any{
			"capacity": map[string]any{"storage": "1Mi"}, "accessModes": []string{"ReadWriteOnce"}, "storageClassName": n.ns,
			"persistentVolumeReclaimPolicy": "Retain", "hostPath": map[string]any{"path": data},
		},
	})
	require.NoError(t, err)
	pvm, err := n.c.Mapping(ctx, "", "PersistentVolume", "v1")
	require.NoError(t, err)
	_, err = n.c.Apply(ctx, pvm, cluster.ID{Kind: "PersistentVolume", Name: n.ns}, pv)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.c.Remove(ctx, cluster.ID{Kind: "PersistentVolume", Name: n.ns}, "") })
	claim := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}", n.ns)
	with := func(image string) string {
		return deployment("web", image, "        env: [{name: DATA, value: /data/log}]", "        volumeMounts: [{name: data, mountPath: /data}]",
			"      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]")
	}
	n.load(m, n.ns, "shop-data:1", "VERSION=v1")
	n.load(m, n.ns, "shop-data:2", "VERSION=v2")
	n.load(m, n.ns, "shop-data:3", "VERSION=v3", "UNREADY=1")
	first := n.manifests(claim, with("shop-data:1"))
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, first)))
	uid := n.get("", "PersistentVolumeClaim", "data").GetUID()
	second := n.manifests(claim, with("shop-data:2"))
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, second)))
	require.Error(t, m.Rollout(ctx, n.request(n.ns, n.manifests(hasty(with("shop-data:3"))))), "and it drops the claim")
	require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: n.request(n.ns, second)}))
	require.NoError(t, m.Stop(ctx, submodules.StopRequest{Request: n.request(n.ns, second)}))
	require.NoError(t, m.Start(ctx, n.request(n.ns, second)))
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(deployment("web", "shop-data:2")))), "and it drops the claim")
	require.Equal(t, uid, n.get("", "PersistentVolumeClaim", "data").GetUID())
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
	require.Equal(t, uid, n.get("", "PersistentVolumeClaim", "data").GetUID())
	log, err := os.ReadFile(filepath.Join(data, "log"))
	require.NoError(t, err)
	require.Equal(t, "v1\nv2\nv3\nv2\n", string(log))
	all := n.request(n.ns, "")
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: all, Data: true}))
	require.Nil(t, n.get("", "PersistentVolumeClaim", "data"))
}

// What a PURGE leaves in a namespace that the artifact chose is found by a later one, which
// does not know the artifact, and is not confused with that of another device.
func TestPurgeElsewhere(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ctx := context.Background()
	claim := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}", n.ns)
	volume := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %[1]s-own}\nspec: {storageClassName: %[1]s, accessModes: [ReadWriteOnce], capacity: {storage: 1Mi}, hostPath: {path: /tmp}}", n.ns)
	n.set.Cluster = "yes"
	m := n.module()
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(claim, volume))))
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
	other := cluster.ID{Kind: "PersistentVolumeClaim", Namespace: "kube-public", Name: n.ns}
	n.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": %q, "namespace": "kube-public", "labels": {%q: %q}},
		"spec": {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}`, n.ns, marks.App, n.ns))
	t.Cleanup(func() { _ = n.c.Remove(ctx, other, "") })

	n.set.Namespace = "default"
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
	require.NotNil(t, n.get("", "PersistentVolumeClaim", "data"))
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, ""), Data: true}))
	require.Nil(t, n.get("", "PersistentVolumeClaim", "data"))
	for what, id := range map[string]cluster.ID{"own": {Kind: "PersistentVolume", Name: n.ns + "-own"}, "another device's": other} {
		o, err := n.c.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, what == "own", o == nil, what)
	}
}

// TestPurgeTwice: the claims that a StatefulSet made outlive it, and a PURGE
// that is asked to finds them when the StatefulSet is long gone.
func TestPurgeTwice(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	n.load(m, n.ns, "shop-set:1", "VERSION=v1")
	n.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %q}, "spec": {
		"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": %[1]q,
		"persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": %q}}}`, n.ns, t.TempDir()))
	t.Cleanup(func() { n.Kubectl("delete", "pv", n.ns, "--wait=false") })
	n.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, n.ns))
	n.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-dbs-0", "namespace": %q},
		"spec": {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}`, n.ns))
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
      containers: [{name: c, image: "shop-set:1", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}`, n.ns)
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(set, configMap("one")))))
	uid := n.get("", "PersistentVolumeClaim", "data-db-0").GetUID()
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
	require.Nil(t, n.get("apps", "StatefulSet", "db"))
	claim := n.get("", "PersistentVolumeClaim", "data-db-0")
	require.NotNil(t, claim)
	require.Equal(t, uid, claim.GetUID())

	all := n.request(n.ns, "")
	for range 2 {
		require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: all, Data: true}))
		claim = n.get("", "PersistentVolumeClaim", "data-db-0")
		require.True(t, claim == nil || claim.GetDeletionTimestamp() != nil)
		require.NotNil(t, n.get("", "PersistentVolumeClaim", "data-dbs-0"), "another's")
	}
}

func TestCustomResource(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	group := n.ns + ".example"
	early, err := cluster.Connect(n.set.Kubeconfig, n.ns, n.set.Connect, n.logf)
	require.NoError(t, err)
	_, err = early.Mapping(ctx, "", "ConfigMap", "")
	require.NoError(t, err)
	crd := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%s}
spec:
  group: %s
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}`, group, group)
	thing := fmt.Sprintf("apiVersion: %s/v1\nkind: Thing\nmetadata: {name: it}\nspec: {size: 3}", group)
	dir := n.manifests(thing, crd)
	require.ErrorContains(t, m.Rollout(ctx, n.request(n.ns, dir)), "K8S_ALLOW_CLUSTER_OBJECTS")
	n.set.Cluster = "CustomResourceDefinition"
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, dir)))
	o := n.get(group, "Thing", "it")
	require.Equal(t, int64(3), n.field(o, "spec.size"))
	require.ErrorContains(t, m.Rollout(ctx, n.request(n.ns, n.manifests(strings.Replace(thing, "size", "sice", 1), crd))), "app.yaml:4: Thing/it: unknown field spec.sice")

	t.Log("a changed definition and what it newly allows, in one release")
	wider := strings.Replace(crd, "{size: {type: integer}}", "{size: {type: integer}, colour: {type: string}}", 1)
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(strings.Replace(thing, "size: 3", "size: 3, colour: red", 1), wider))))
	require.Equal(t, "red", n.field(n.get(group, "Thing", "it"), "spec.colour"))
	require.Eventually(t, func() bool {
		o, err := early.Get(ctx, cluster.ID{Group: group, Kind: "Thing", Namespace: n.ns, Name: "it"})
		return err == nil && o != nil
	}, time.Minute, 100*time.Millisecond, "a connection that is older than the definition")

	t.Log("a definition in use by others stays")
	other := newNode(t)
	foreign := cluster.ID{Group: group, Kind: "Thing", Namespace: other.ns, Name: "theirs"}
	ns, err := n.c.Mapping(ctx, "", "Namespace", "v1")
	require.NoError(t, err)
	_, err = n.c.Apply(ctx, ns, cluster.ID{Kind: "Namespace", Name: other.ns}, []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, other.ns)))
	require.NoError(t, err)
	mp, err := n.c.Mapping(ctx, group, "Thing", "v1")
	require.NoError(t, err)
	_, err = n.c.Apply(ctx, mp, foreign, []byte(fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":"theirs"}}`, group)))
	require.NoError(t, err)
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, n.manifests(configMap("only")))))
	require.Nil(t, n.get(group, "Thing", "it"))
	require.Contains(t, n.log(), "there are objects of its kind, such as theirs in "+other.ns)

	t.Log("and so does a namespace, for a connection that is older than the definition")
	why, err := (&session{c: early, log: n.logf}).namespaceInUse(ctx, other.ns, false)
	require.NoError(t, err)
	require.Equal(t, "there is Thing/theirs in it", why)
	require.NoError(t, n.c.Remove(ctx, foreign, ""))
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
	gone, err := n.c.Get(ctx, cluster.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "things." + group})
	require.NoError(t, err)
	require.Nil(t, gone)
}
