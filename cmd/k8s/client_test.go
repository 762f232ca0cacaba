package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

// TestThroughTheMenderClient plays the life of an application on Kubernetes:
// installed, updated by a deep delta without a gap, saved from a release that
// never becomes ready and from a broken one, and taken back by the operator.
func TestThroughTheMenderClient(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	v1, v2, v3, v4 := d.image("1"), d.image("2"), d.image("3", "UNREADY=1"), d.image("4")

	t.Log("a first release that fails leaves nothing")
	_, err := d.mender("install", d.artifact("3", manifests("3"), "--image="+v3))
	require.Error(t, err)
	require.Contains(t, d.Kubectl("get", "namespace", d.ns), "NotFound")
	list, err := d.command(d.submodule(), "LIST", d.app).Output()
	require.NoError(t, err)
	require.JSONEq(t, "[]", string(list))

	t.Log("installed as a delta over nothing")
	d.installs(d.artifact("1", manifests("1"), "--deep-delta", "--image="+v1))
	d.at("1")

	t.Log("updated by a deep delta; what was dropped goes")
	stop := d.Watch(d.ns, "web")
	delta := d.artifact("2", manifests("2"), "--deep-delta", "--image="+v1+","+v2)
	d.installs(delta)
	asked, failed := stop()
	require.Positive(t, asked)
	require.Zero(t, failed, "of %d requests", asked)
	d.at("2")
	fi, err := os.Stat(delta)
	require.NoError(t, err)
	t.Logf("the delta's artifact has %d bytes; none of %d requests failed", fi.Size(), asked)

	t.Log("one that never becomes ready: back to the old ReplicaSet, and nothing was pruned in between")
	sets := d.in("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.labels.pod-template-hash}")
	kept := d.in("get", "configmap", "cm2", "-o", "jsonpath={.metadata.uid}")
	stop = d.Watch(d.ns, "web")
	later := strings.Replace(manifests("3"), "progressDeadlineSeconds: 8", "progressDeadlineSeconds: 15", 1) // time for the pod to say what is wrong
	said, err := d.mender("install", d.artifact("3", later, "--image="+v3))
	require.Error(t, err)
	require.Contains(t, said, "probe 3 listens", "the pod's log is in the client's")
	_, failed = stop()
	require.Zero(t, failed)
	d.at("2")
	require.Equal(t, sets, d.in("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.labels.pod-template-hash}"))
	require.Equal(t, kept, d.in("get", "configmap", "cm2", "-o", "jsonpath={.metadata.uid}"))

	t.Log("a broken one is refused with nothing changed")
	before := d.everything()
	broken := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: broken}\ndataa: {}\n"
	said, err = d.mender("install", d.artifact("4", manifests("4", broken), "--image="+v4))
	require.Error(t, err)
	require.Contains(t, said, "app.yaml:26: ConfigMap/broken: unknown field dataa")
	require.Equal(t, before, d.everything())
	d.at("2")

	t.Log("undone by the operator")
	d.must("install", d.artifact("4", manifests("4"), "--image="+v4))
	require.Equal(t, "4", d.says())
	d.must("rollback")
	d.at("2")
}

// TestDataStays holds that a volume claim and what is in it outlive an update,
// a rollback, STOP and START.
func TestDataStays(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	data := t.TempDir()
	require.NoError(t, os.Chmod(data, 0o777))
	// The cluster has no provisioner: an operator made the volume.
	d.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %q}, "spec": {
		"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": %[1]q,
		"persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": %q}}}`, d.ns, data))
	t.Cleanup(func() { d.Kubectl("delete", "pv", d.ns, "--wait=false") })
	claim := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n", d.ns)
	release := func(version string, env ...string) string {
		text := strings.Replace(manifests(version, claim), "        imagePullPolicy: Never\n", `        imagePullPolicy: Never
        env: [{name: DATA, value: /data/log}]
        volumeMounts: [{name: data, mountPath: /data}]
`, 1)
		text = strings.Replace(text, "      containers:\n", "      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n      containers:\n", 1)
		return d.artifact(version, text, "--image="+d.image(version, env...))
	}
	d.installs(release("1"))
	uid := d.in("get", "pvc", "data", "-o", "jsonpath={.metadata.uid}")
	require.NotEmpty(t, uid)
	d.installs(release("2"))
	_, err := d.mender("install", release("3", "UNREADY=1"))
	require.Error(t, err)
	d.at("2")
	dir := filepath.Join(d.dir, "store", d.app, "manifests")
	d.byHand(d.submodule(), "STOP", d.app, dir)
	require.Empty(t, d.says())
	d.byHand(d.submodule(), "START", d.app, dir)
	d.at("2")
	require.Equal(t, uid, d.in("get", "pvc", "data", "-o", "jsonpath={.metadata.uid}"))
	log, err := os.ReadFile(filepath.Join(data, "log"))
	require.NoError(t, err)
	require.Equal(t, "1\n2\n3\n2\n", string(log), "each start of a release left its line; rolling back started nothing")
}

// TestTwoApplications has two in two namespaces, one with a definition and its
// custom resource: an update of one does not touch the other.
func TestTwoApplications(t *testing.T) {
	t.Parallel()
	d := newDevice(t, "K8S_ALLOW_CLUSTER_OBJECTS=CustomResourceDefinition")
	other := d.ns + "-store"
	group := d.ns + ".example"
	crd := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`, group)
	thing := fmt.Sprintf("apiVersion: %s/v1\nkind: Thing\nmetadata: {name: it}\nspec: {size: VERSION}\n", group)
	v1, v2 := d.image("1"), d.image("2")

	d.installs(d.artifactOf("store-"+d.ns, other, "1", manifests("1"), "--image="+v1))
	require.Equal(t, "1", d.Answer(other, "web"))
	pod := d.Kubectl("-n", other, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")

	// The resource stands before its definition.
	d.installs(d.artifact("1", manifests("1", thing, crd), "--image="+v1))
	d.at("1")
	require.Equal(t, "1", d.in("get", "things."+group, "it", "-o", "jsonpath={.spec.size}"))
	d.installs(d.artifact("2", manifests("2", thing, crd), "--image="+v2))
	d.at("2")
	require.Equal(t, "2", d.in("get", "things."+group, "it", "-o", "jsonpath={.spec.size}"))
	require.Equal(t, pod, d.Kubectl("-n", other, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"))

	t.Log("one goes, with its definition; the other stays, and the image that both had")
	d.byHand(d.submodule(), "PURGE", d.app)
	require.Contains(t, d.Kubectl("get", "crd", "things."+group), "NotFound")
	require.Contains(t, d.Kubectl("get", "namespace", d.ns), "NotFound")
	require.Equal(t, "1", d.Answer(other, "web"))
	d.Kubectl("-n", other, "delete", "pod", "-l", "app=web") // the next one needs the image
	require.Contains(t, d.Kubectl("-n", other, "rollout", "status", "deployment/web", "--timeout=240s"), "successfully rolled out")
	require.Equal(t, "1", d.Answer(other, "web"))
}

// TestDiscardedBase: containerd may discard a layer's blob once it is unpacked.
// A delta that leaves that layer out does not need it, nor does one that needs
// files alone; one that needs the layer's headers is refused, and says what to
// do, and the release that runs is left alone.
func TestDiscardedBase(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	text := func(version string) map[string][]byte {
		lines := strings.Repeat("the same in every version of "+d.ns+"\n", 2000)
		return map[string][]byte{"usr/share/text": []byte(lines + version + "\n" + lines)}
	}
	image := func(version string, files map[string][]byte) (string, digest.Digest) {
		img := d.Image(t, d.ref(version), files, "VERSION="+version)
		return "docker-archive:" + img.File(t), img.DiffIDs[1]
	}
	v1, layer := image("1", text("1"))
	d.installs(d.artifact("1", manifests("1"), "--image="+v1))
	require.NotContains(t, d.Ctr("content", "rm", layer.String()), "error")
	require.NotContains(t, d.Ctr("content", "ls", "-q"), layer.String())

	v2, _ := image("2", text("1"))
	d.installs(d.artifact("2", manifests("2"), "--deep-delta", "--image="+v1+","+v2))
	d.at("2")

	before := d.everything()
	v4, _ := image("4", text("4"))
	out, err := d.mender("install", d.artifact("4", manifests("4"), "--deep-delta", "--image="+v1+","+v4))
	require.Error(t, err)
	require.Contains(t, out, "its content was discarded after it was unpacked")
	require.Contains(t, out, "app-gen --files-only")
	require.Equal(t, before, d.everything())
	d.at("2")

	d.installs(d.artifact("4", manifests("4"), "--deep-delta", "--files-only", "--image="+v1+","+v4))
	d.at("4")
}

// TestVerifyAndRepair: the operator finds what is damaged of an image, and has
// it made whole.
func TestVerifyAndRepair(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	img := d.Image(t, d.ref("1"), map[string][]byte{"etc/version": []byte("1" + d.ns)}, "VERSION=1")
	whole := d.artifact("1", manifests("1"), "--image=docker-archive:"+img.File(t))
	d.installs(whole)
	operate := func(args ...string) (string, error) {
		cmd := d.command(append([]string{filepath.Join(d.dir, "bin/mender-app")}, args...)...)
		cmd.Env = cmd.Env[:3]
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := operate("verify", d.app)
	require.NoError(t, err, out)

	t.Log("the blob: an artifact has it, and nothing is stopped")
	pod := d.in("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
	require.NoError(t, os.Truncate(d.Blob(img.DiffIDs[1]), 0))
	out, err = operate("verify", d.app)
	require.Error(t, err)
	require.Contains(t, out, "its blob")
	out, err = operate("verify", "--repair", d.app)
	require.Error(t, err)
	require.Contains(t, out, "--repair --from FILE.mender "+d.app)
	out, err = operate("verify", "--repair", "--from", whole, d.app)
	require.NoError(t, err, out)
	require.Equal(t, pod, d.in("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"))

	t.Log("a file: from its blob, and the application comes up again")
	require.NoError(t, os.Truncate(filepath.Join(d.Unpacked(t, img.DiffIDs), "etc/version"), 0))
	out, err = operate("verify", "--repair", d.app)
	require.NoError(t, err, out)
	require.Contains(t, out, "etc/version has 0 bytes")
	d.at("1")
	require.NotEqual(t, pod, d.in("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"))
	out, err = operate("verify", d.app)
	require.NoError(t, err, out)
}
