//go:build k8snode

package k8s

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// nodeEnv names the directory of a running node; `make test-k8s` starts one
// and sets it. Without it these tests are skipped, in CI too: there `make
// test-k8s` is a step of its own.
const nodeEnv = "MENDER_APP_K8SNODE"

// node is the Kubernetes node of a test, and an application's namespace on it.
type node struct {
	t   *testing.T
	dir string
	ns  string
	set Settings
	c   *cluster

	mu    sync.Mutex
	lines []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir := os.Getenv(nodeEnv)
	if dir == "" {
		t.Skipf("no Kubernetes node: %s is not set; run make test-k8s", nodeEnv)
	}
	n := &node{t: t, dir: dir, ns: fmt.Sprintf("t%x", time.Now().UnixNano())}
	n.set = Settings{
		Kubeconfig: filepath.Join(dir, "admin.kubeconfig"), Containerd: filepath.Join(dir, "run/containerd.sock"),
		Namespace: n.ns, ImageTarget: "containerd",
		Deadline: time.Minute, Connect: 20 * time.Second, Stable: time.Second, Restarts: 1, TerminateFor: 30 * time.Second,
	}
	var err error
	n.c, err = connect(n.set, n.logf)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, l := range n.lines {
				t.Log(l)
			}
		}
		_ = n.c.remove(context.Background(), id{Kind: "Namespace", Name: n.ns}, "")
	})
	return n
}

func (n *node) logf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *node) log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

func (n *node) module() *Module {
	m := New(func() (Settings, error) { return n.set, nil })
	n.t.Cleanup(func() { _ = m.Close() })
	return m
}

func (n *node) request(app, dir string) submodules.Request {
	return submodules.Request{App: app, Dir: dir, TempDir: n.t.TempDir(), Log: func(l string) { n.logf("%s", l) }}
}

// manifests writes a release's manifests.
func (n *node) manifests(docs ...string) string {
	dir := n.t.TempDir()
	require.NoError(n.t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(strings.Join(docs, "\n---\n")), 0o644))
	return dir
}

// get returns an object of the test's namespace, nil if it is not there.
func (n *node) get(group, kind, name string) *unstructured.Unstructured {
	n.t.Helper()
	o, err := n.c.get(context.Background(), id{Group: group, Kind: kind, Namespace: n.ns, Name: name})
	require.NoError(n.t, err)
	return o
}

func (n *node) field(o *unstructured.Unstructured, path string) any {
	v, _, err := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, ".")...)
	require.NoError(n.t, err)
	return v
}

// pods returns the running pods with the label app=name.
func (n *node) pods(name string) []pod {
	n.t.Helper()
	list, err := (&session{c: n.c, log: n.logf}).survey().in(context.Background(), n.ns)
	require.NoError(n.t, err)
	var out []pod
	for _, p := range list {
		if p.Metadata.Labels["app"] == name && p.Metadata.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

// answer asks the web server of a pod; "" if none answers.
func (n *node) answer(name string) string {
	list, err := n.c.list(context.Background(), "", "Pod", n.ns, "app="+name)
	if err != nil {
		return ""
	}
	for i := range list {
		ip, _, _ := unstructured.NestedString(list[i].Object, "status", "podIP")
		if ip == "" {
			continue
		}
		c := http.Client{Timeout: time.Second}
		resp, err := c.Get("http://" + ip + ":8080/")
		if err != nil {
			continue
		}
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		_ = resp.Body.Close()
		return strings.TrimSpace(b.String())
	}
	return ""
}

// archive makes an image of the probe in the form of an image archive.
func (n *node) archive(env ...string) (*image.Image, []byte) {
	n.t.Helper()
	return makeImage(n.t, n.dir, nil, env...)
}

// makeImage makes an image of two layers: the probe, and more (files, or one
// with the environment in it).
func makeImage(t *testing.T, dir string, more map[string][]byte, env ...string) (*image.Image, []byte) {
	t.Helper()
	probe, err := os.ReadFile(filepath.Join(dir, "bin/probe"))
	require.NoError(t, err)
	if more == nil {
		more = map[string][]byte{"etc/env": []byte(strings.Join(env, "\n"))}
	}
	tars := [][]byte{packTar(t, map[string][]byte{"probe": probe}), packTar(t, more)}
	var layers []image.Layer
	var diffIDs []string
	for _, b := range tars {
		layers = append(layers, image.Layer{DiffID: image.DigestOf(b), Size: int64(len(b)), Open: opener(b)})
		diffIDs = append(diffIDs, image.DigestOf(b).String())
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/probe"}, "Env": env},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	require.NoError(t, err)
	img, err := image.New(config, layers)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, image.WriteArchive(&out, image.ArchiveSpec{Image: img, RepoTags: []string{"probe:any"}}))
	return img, out.Bytes()
}

func packTar(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg, ModTime: time.Unix(1, 0)}))
		_, err := w.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// load brings an image in under a reference, and returns the component.
func (n *node) load(m *Module, app, url string, env ...string) submodules.Component {
	n.t.Helper()
	img, data := n.archive(env...)
	r := n.request(app, "")
	r.URL, r.Path, r.Stdin = url, "-", bytes.NewReader(data)
	require.NoError(n.t, m.Load(context.Background(), r))
	n.t.Cleanup(func() { n.unload(app, url, img) })
	c := submodules.Component{Type: "image", URL: url, Digest: img.ConfigDigest.String()}
	for _, d := range img.DiffIDs {
		c.DiffIDs = append(c.DiffIDs, d.String())
	}
	return c
}

func (n *node) unload(app, url string, img *image.Image) {
	m := New(func() (Settings, error) { return n.set, nil })
	defer m.Close()
	r := n.request(app, "")
	r.URL = url + "@" + img.ConfigDigest.String()
	_ = m.Delete(context.Background(), r)
}

// deployment is one that allows an update without a gap.
func deployment(name, image string, more ...string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 1
  progressDeadlineSeconds: 8
  selector: {matchLabels: {app: %s}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: %s}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: web
        image: %s
        imagePullPolicy: Never
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
%s`, name, name, name, image, strings.Join(more, "\n"))
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {k: v}"
}

// watch asks for the answers of an application until stopped, and says how
// often none came.
func (n *node) watch(name string) (stop func() (asked, failed int)) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	var asked, failed int
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-done:
				return
			case <-time.After(30 * time.Millisecond):
			}
			if asked++; n.answer(name) == "" {
				failed++
			}
		}
	}()
	return func() (int, int) { close(done); wg.Wait(); return asked, failed }
}

func TestRelease(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	v1 := n.load(m, "shop", "shop-web:1", "VERSION=v1")
	first := n.manifests(deployment("web", "shop-web:1"), configMap("old"), configMap("both"))
	r := n.request("shop", first)
	r.Components = []submodules.Component{v1}
	require.NoError(t, m.Rollout(ctx, r))
	require.Equal(t, "v1", n.answer("web"))
	for name, ask := range map[string]func(context.Context, submodules.Request) (bool, error){"alive": m.Alive, "healthy": m.Healthy} {
		ok, err := ask(ctx, n.request("shop", ""))
		require.NoError(t, err)
		require.True(t, ok, name)
	}
	before := n.pods("web")[0].Metadata.UID

	t.Log("the same release again restarts nothing")
	require.NoError(t, m.Rollout(ctx, r))
	require.Equal(t, before, n.pods("web")[0].Metadata.UID)

	t.Log("an update without a gap; what is dropped goes")
	n.load(m, "shop", "shop-web:2", "VERSION=v2")
	second := n.manifests(deployment("web", "shop-web:2"), configMap("both"), configMap("new"))
	stop := n.watch("web")
	require.NoError(t, m.Rollout(ctx, n.request("shop", second)))
	asked, failed := stop()
	require.Positive(t, asked)
	require.Zero(t, failed, "of %d", asked)
	require.Equal(t, "v2", n.answer("web"))
	require.Nil(t, n.get("", "ConfigMap", "old"))
	require.NotNil(t, n.get("", "ConfigMap", "both"))
	set := n.pods("web")[0].Metadata.OwnerReferences[0].UID

	t.Log("a release that never gets ready, and the way back to the old ReplicaSet")
	n.load(m, "shop", "shop-web:3", "VERSION=v3", "UNREADY=1")
	third := n.manifests(deployment("web", "shop-web:3"), configMap("third"))
	stop = n.watch("web")
	err := m.Rollout(ctx, n.request("shop", third))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.ErrorContains(t, err, "Deployment/web")
	require.ErrorContains(t, err, "probe v3 listens", "the pod's log")
	require.ErrorContains(t, err, "Readiness probe failed", "its events")
	require.NotNil(t, n.get("", "ConfigMap", "new"), "nothing is pruned before the release is healthy")
	back := n.request("shop", second)
	back.FailedDir = third
	require.NoError(t, m.Rollback(ctx, back))
	_, failed = stop()
	require.Zero(t, failed)
	require.Equal(t, set, n.pods("web")[0].Metadata.OwnerReferences[0].UID)
	require.Nil(t, n.get("", "ConfigMap", "third"))

	t.Log("one that crashes fails early, with what it said")
	n.load(m, "shop", "shop-web:4", "VERSION=v4", "EXIT=3")
	began := time.Now()
	err = m.Rollout(ctx, n.request("shop", n.manifests(deployment("web", "shop-web:4"))))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.ErrorContains(t, err, "CrashLoopBackOff")
	require.ErrorContains(t, err, "probe v4 exits with status 3")
	t.Logf("found after %s: %v", time.Since(began).Round(100*time.Millisecond), err)
	require.NoError(t, m.Rollback(ctx, n.request("shop", second)))
	require.Equal(t, "v2", n.answer("web"))

	t.Log("what was shipped comes back")
	out := filepath.Join(t.TempDir(), "out")
	require.NoError(t, m.ExportManifest(ctx, n.request("shop", out)))
	want, err := os.ReadFile(filepath.Join(second, "app.yaml"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(out, "app.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))

	require.NoError(t, m.Purge(ctx, n.request("shop", "")))
	o, err := n.c.get(ctx, id{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, o, "the namespace was made for the application, and is empty")
	ok, err := m.Alive(ctx, n.request("shop", ""))
	require.NoError(t, err)
	require.False(t, ok)
	list, err := m.List(ctx, n.request("shop", ""))
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestRefused(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	require.NoError(t, m.Rollout(ctx, n.request("shop", n.manifests(configMap("one")))))
	before := n.get("", "ConfigMap", "one").GetResourceVersion()
	inventory := n.get("", "ConfigMap", "mender-app-shop").GetResourceVersion()
	n.load(m, "shop", "shop-refused:1", "VERSION=v1")
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
		"ours":            {configMap("mender-app-shop"), "mender-app's own", submodules.ErrContent},
	} {
		t.Run(name, func(t *testing.T) {
			err := m.Rollout(ctx, n.request("shop", n.manifests(changed, c.doc)))
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, c.is)
			require.Equal(t, before, n.get("", "ConfigMap", "one").GetResourceVersion())
			require.Equal(t, inventory, n.get("", "ConfigMap", "mender-app-shop").GetResourceVersion())
		})
	}
	t.Run("another application's", func(t *testing.T) {
		err := m.Rollout(ctx, n.request("other", n.manifests(configMap("one"))))
		require.ErrorContains(t, err, "it belongs to the application shop")
	})
	t.Run("the cluster's namespace", func(t *testing.T) {
		set := n.set
		set.Namespace = "kube-system"
		m := New(func() (Settings, error) { return set, nil })
		require.ErrorContains(t, m.Rollout(ctx, n.request("x", n.manifests(configMap("one")))), "the cluster's own")
	})
	t.Run("a new namespace goes again", func(t *testing.T) {
		set := n.set
		set.Namespace = n.ns + "-new"
		m := New(func() (Settings, error) { return set, nil })
		require.Error(t, m.Rollout(ctx, n.request("x", n.manifests(configMap("one"), deployment("web", "nowhere:1")))))
		require.Eventually(t, func() bool {
			o, err := n.c.get(ctx, id{Kind: "Namespace", Name: set.Namespace})
			return err == nil && o == nil
		}, 20*time.Second, 100*time.Millisecond)
	})
	t.Run("a namespace on its way out", func(t *testing.T) {
		pinned := strings.Replace(configMap("held"), "{name: held}", "{name: held, finalizers: [example.com/hold]}", 1)
		require.NoError(t, m.Rollout(ctx, n.request("shop", n.manifests(configMap("one"), pinned))))
		require.NoError(t, n.c.remove(ctx, id{Kind: "Namespace", Name: n.ns}, ""))
		n.set.TerminateFor = time.Second // it is the application's own: it is waited for
		err := m.Rollout(ctx, n.request("shop", n.manifests(changed)))
		require.ErrorContains(t, err, "is being deleted")
		require.NoError(t, n.c.patch(ctx, id{Kind: "ConfigMap", Namespace: n.ns, Name: "held"}, map[string]any{"metadata": map[string]any{"finalizers": nil}}))
	})
}

// TestStop holds that STOP keeps everything but what runs.
func TestStop(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	n.load(m, "shop", "shop-stop:1", "VERSION=v1")
	pod := `apiVersion: v1
kind: Pod
metadata: {name: bare, labels: {app: bare}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never}]}`
	daemon := `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ds}
spec:
  selector: {matchLabels: {app: ds}}
  template:
    metadata: {labels: {app: ds}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never}]}`
	cron := `apiVersion: batch/v1
kind: CronJob
metadata: {name: cron}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never}]}}}}`
	job := `apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never, env: [{name: EXIT, value: "%d"}]}]}}}`
	two := strings.Replace(deployment("web", "shop-stop:1"), "replicas: 1", "replicas: 2", 1)
	dir := n.manifests(two, pod, daemon, cron, fmt.Sprintf(job, 0))
	require.NoError(t, m.Rollout(ctx, n.request("shop", dir)))
	require.Len(t, n.pods("web"), 2)

	for range 2 { // the second changes nothing
		require.NoError(t, m.Stop(ctx, n.request("shop", dir)))
		require.Empty(t, n.pods("web"))
		require.Empty(t, n.pods("bare"))
		require.Empty(t, n.pods("ds"))
		require.Equal(t, true, n.field(n.get("batch", "CronJob", "cron"), "spec.suspend"))
		ok, err := m.Alive(ctx, n.request("shop", ""))
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.NoError(t, m.Start(ctx, n.request("shop", dir)))
	require.Len(t, n.pods("web"), 2)
	require.Len(t, n.pods("bare"), 1)
	require.Len(t, n.pods("ds"), 1)
	require.Equal(t, false, n.field(n.get("batch", "CronJob", "cron"), "spec.suspend"))
	ok, err := m.Healthy(ctx, n.request("shop", ""))
	require.NoError(t, err)
	require.True(t, ok, n.log())

	t.Log("a ROLLOUT starts what was stopped")
	require.NoError(t, m.Stop(ctx, n.request("shop", dir)))
	require.NoError(t, m.Rollout(ctx, n.request("shop", dir)))
	require.Len(t, n.pods("ds"), 1)

	t.Log("a changed Job is another one, and a failed one is found")
	old := n.get("batch", "Job", "job").GetUID()
	err = m.Rollout(ctx, n.request("shop", n.manifests(strings.Replace(fmt.Sprintf(job, 7), "spec: {", "spec: {backoffLimit: 0, ", 1))))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.ErrorContains(t, err, "Job/job")
	require.ErrorContains(t, err, "exits with status 7")
	require.NotEqual(t, old, n.get("batch", "Job", "job").GetUID())
	require.NoError(t, m.Rollback(ctx, n.request("shop", dir)))
	require.NoError(t, m.Purge(ctx, n.request("shop", "")))
}

func TestData(t *testing.T) {
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
	pvm, err := n.c.mapping(ctx, "", "PersistentVolume", "v1")
	require.NoError(t, err)
	_, err = n.c.apply(ctx, pvm, id{Kind: "PersistentVolume", Name: n.ns}, pv, false)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.c.remove(ctx, id{Kind: "PersistentVolume", Name: n.ns}, "") })
	claim := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}", n.ns)
	with := func(image string) string {
		return deployment("web", image, "        env: [{name: DATA, value: /data/log}]", "        volumeMounts: [{name: data, mountPath: /data}]",
			"      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]")
	}
	n.load(m, "shop", "shop-data:1", "VERSION=v1")
	n.load(m, "shop", "shop-data:2", "VERSION=v2")
	n.load(m, "shop", "shop-data:3", "VERSION=v3", "UNREADY=1")
	first := n.manifests(claim, with("shop-data:1"))
	require.NoError(t, m.Rollout(ctx, n.request("shop", first)))
	uid := n.get("", "PersistentVolumeClaim", "data").GetUID()
	second := n.manifests(claim, with("shop-data:2"))
	require.NoError(t, m.Rollout(ctx, n.request("shop", second)))
	require.Error(t, m.Rollout(ctx, n.request("shop", n.manifests(with("shop-data:3")))), "and it drops the claim")
	require.NoError(t, m.Rollback(ctx, n.request("shop", second)))
	require.NoError(t, m.Stop(ctx, n.request("shop", second)))
	require.NoError(t, m.Start(ctx, n.request("shop", second)))
	require.NoError(t, m.Rollout(ctx, n.request("shop", n.manifests(deployment("web", "shop-data:2")))), "and it drops the claim")
	require.Equal(t, uid, n.get("", "PersistentVolumeClaim", "data").GetUID())
	require.NoError(t, m.Purge(ctx, n.request("shop", "")))
	require.Equal(t, uid, n.get("", "PersistentVolumeClaim", "data").GetUID())
	log, err := os.ReadFile(filepath.Join(data, "log"))
	require.NoError(t, err)
	require.Equal(t, "v1\nv2\nv3\nv2\n", string(log))
	all := n.request("shop", "")
	all.PurgeData = true
	require.NoError(t, m.Purge(ctx, all))
	require.Nil(t, n.get("", "PersistentVolumeClaim", "data"))
}

func TestCustomResource(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	group := n.ns + ".example"
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
	require.ErrorContains(t, m.Rollout(ctx, n.request("shop", dir)), "K8S_ALLOW_CLUSTER_OBJECTS")
	n.set.Cluster = "CustomResourceDefinition"
	require.NoError(t, m.Rollout(ctx, n.request("shop", dir)))
	o := n.get(group, "Thing", "it")
	require.Equal(t, int64(3), n.field(o, "spec.size"))
	require.ErrorContains(t, m.Rollout(ctx, n.request("shop", n.manifests(strings.Replace(thing, "size", "sice", 1), crd))), "app.yaml:4: Thing/it: unknown field spec.sice")

	t.Log("a definition in use by others stays")
	foreign := id{Group: group, Kind: "Thing", Namespace: "default", Name: "theirs"}
	mp, err := n.c.mapping(ctx, group, "Thing", "v1")
	require.NoError(t, err)
	_, err = n.c.apply(ctx, mp, foreign, []byte(fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":"theirs"}}`, group)), false)
	require.NoError(t, err)
	require.NoError(t, m.Rollout(ctx, n.request("shop", n.manifests(configMap("only")))))
	require.Nil(t, n.get(group, "Thing", "it"))
	require.Contains(t, n.log(), "there are objects of its kind, such as theirs in default")
	require.NoError(t, n.c.remove(ctx, foreign, ""))
	require.NoError(t, m.Purge(ctx, n.request("shop", "")))
	gone, err := n.c.get(ctx, id{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "things." + group})
	require.NoError(t, err)
	require.Nil(t, gone)
}

func TestTwoApplications(t *testing.T) {
	a, b := newNode(t), newNode(t)
	ctx := context.Background()
	ma, mb := a.module(), b.module()
	require.NoError(t, ma.Rollout(ctx, a.request("a", a.manifests(configMap("same")))))
	require.NoError(t, mb.Rollout(ctx, b.request("b", b.manifests(configMap("same")))))
	require.NoError(t, ma.Purge(ctx, a.request("a", "")))
	require.Nil(t, a.get("", "ConfigMap", "same"))
	require.NotNil(t, b.get("", "ConfigMap", "same"))
	_, err := b.c.get(ctx, id{Kind: "Namespace", Name: b.ns})
	require.NoError(t, err)

	t.Log("a namespace that others use stays, and what was there before")
	other := id{Kind: "ConfigMap", Namespace: b.ns, Name: "mine"}
	mp, err := b.c.mapping(ctx, "", "ConfigMap", "v1")
	require.NoError(t, err)
	_, err = b.c.apply(ctx, mp, other, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"}}`), false)
	require.NoError(t, err)
	kept := strings.Replace(configMap("kept"), "{name: kept}", `{name: kept, annotations: {mender-app.io/keep: "true"}}`, 1)
	require.NoError(t, mb.Rollout(ctx, b.request("b", b.manifests(configMap("mine"), configMap("same"), kept))))
	require.NoError(t, mb.Purge(ctx, b.request("b", "")))
	require.Nil(t, b.get("", "ConfigMap", "same"))
	require.NotNil(t, b.get("", "ConfigMap", "kept"))
	mine := b.get("", "ConfigMap", "mine")
	require.NotNil(t, mine)
	require.Empty(t, mine.GetLabels()[labelApp])
}

// TestPurgeWithoutInventory: the first ROLLOUT may be killed right after it
// created the namespace.
func TestPurgeWithoutInventory(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	s, err := m.session(n.request("early", ""))
	require.NoError(t, err)
	created, err := s.ensureNamespace(ctx, "early", n.ns)
	require.NoError(t, err)
	require.True(t, created)
	require.NoError(t, m.Purge(ctx, n.request("early", "")))
	o, err := n.c.get(ctx, id{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, o)
}

// TestSameNameElsewhere: another device that shares the cluster has an
// application of the same name.
func TestSameNameElsewhere(t *testing.T) {
	a, b := newNode(t), newNode(t)
	ctx := context.Background()
	ma, mb := a.module(), b.module()
	require.NoError(t, ma.Rollout(ctx, a.request("same", a.manifests(configMap("theirs")))))
	require.NoError(t, a.c.patch(ctx, inventoryID("same", a.ns), map[string]any{"data": map[string]any{"device": "another"}}))
	require.NoError(t, mb.Rollout(ctx, b.request("same", b.manifests(configMap("ours")))))
	all := b.request("same", "")
	all.PurgeData = true
	require.NoError(t, mb.Purge(ctx, all))
	require.NotNil(t, a.get("", "ConfigMap", "theirs"))
	require.NoError(t, ma.Purge(ctx, a.request("same", "")))

	t.Log("and one of this device's moves")
	require.NoError(t, ma.Rollout(ctx, a.request("moves", a.manifests(configMap("it")))))
	require.NoError(t, mb.Rollout(ctx, b.request("moves", b.manifests(configMap("it")))))
	require.Nil(t, a.get("", "ConfigMap", "it"))
	require.NotNil(t, b.get("", "ConfigMap", "it"))
	require.NoError(t, mb.Purge(ctx, b.request("moves", "")))
}

func TestManyObjects(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	docs := make([]string, 200)
	for i := range docs {
		docs[i] = configMap(fmt.Sprint("c", i))
	}
	for _, name := range []string{"first", "unchanged"} {
		began, cpu := time.Now(), cpuTime(t)
		require.NoError(t, m.Rollout(ctx, n.request("many", n.manifests(docs...))))
		own := cpuTime(t) - cpu
		t.Logf("200 objects, %s: %s, of which %s are our own", name, time.Since(began).Round(time.Millisecond), own.Round(time.Millisecond))
		require.Less(t, own, 5*time.Second)
	}
	began := time.Now()
	require.NoError(t, m.Purge(ctx, n.request("many", "")))
	t.Logf("purge: %s", time.Since(began).Round(time.Millisecond))
}

// cpuTime is what this process has used of the processors.
func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestServerDown(t *testing.T) {
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	require.NoError(t, m.Rollout(ctx, n.request("shop", n.manifests(configMap("one")))))
	pidFile := filepath.Join(n.dir, "run/kube-apiserver.pid")
	pid, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	require.NoError(t, exec.Command("kill", "-9", strings.TrimSpace(string(pid))).Run())
	start := func() {
		args, err := os.ReadFile(filepath.Join(n.dir, "run/kube-apiserver.args"))
		require.NoError(t, err)
		argv := strings.Split(strings.TrimSpace(string(args)), "\n")
		log, err := os.OpenFile(filepath.Join(n.dir, "log/kube-apiserver.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the test
		require.NoError(t, cmd.Start())
		require.NoError(t, log.Close())
		require.NoError(t, os.WriteFile(pidFile, []byte(fmt.Sprintln(cmd.Process.Pid)), 0o644))
	}

	set := n.set
	set.Connect = time.Second
	down := New(func() (Settings, error) { return set, nil })
	err = down.Rollout(ctx, n.request("shop", n.manifests(configMap("two"))))
	require.ErrorContains(t, err, "does not answer; is the cluster running?")
	require.ErrorIs(t, err, submodules.ErrRequirement)

	n.set.Connect = time.Minute
	done := make(chan error, 1)
	go func() { done <- m.Rollout(ctx, n.request("shop", n.manifests(configMap("two")))) }()
	time.Sleep(2 * time.Second)
	start()
	require.NoError(t, <-done)
	require.Contains(t, n.log(), "answers again")
	require.NoError(t, m.Purge(ctx, n.request("shop", "")))
}

func opener(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}
