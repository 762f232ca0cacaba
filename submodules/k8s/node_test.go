package k8s

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/testdata/bed/kube"
)

// asProgram makes the test binary the sub-module itself.
const asProgram = "MENDER_APP_TEST_K8S_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		o := New(func() (Settings, error) { return ReadSettings(os.Getenv) })
		os.Exit(submodules.Main(o, Name, "test", os.Args[1:]))
	}
	os.Exit(kube.Run(m))
}

// node is the Kubernetes node of a test, and an application's namespace on it.
type node struct {
	*kube.Node
	t   *testing.T
	ns  string
	set Settings
	c   *cluster.Cluster

	mu    sync.Mutex
	lines []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Node: kube.Start(t), t: t, ns: fmt.Sprintf("t%x", time.Now().UnixNano())}
	n.set = Settings{
		Kubeconfig: n.Kubeconfig(), Containerd: n.Containerd(), Namespace: n.ns,
		// Long, for a busy machine: what they bound is not tested with them.
		Deadline: 4 * time.Minute, Connect: 2 * time.Minute, Stable: time.Second, Restarts: 1, TerminateFor: 3 * time.Minute,
	}
	var err error
	n.c, err = cluster.Connect(n.set.Kubeconfig, n.ns, n.set.Connect, n.logf)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, l := range n.lines {
				t.Log(l)
			}
		}
		_ = n.c.Remove(context.Background(), cluster.ID{Kind: "Namespace", Name: n.ns}, "")
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

func (n *node) module() caller {
	return caller{New(func() (Settings, error) { return n.set, nil })}
}

func (n *node) request(app, dir string) submodules.Request {
	return submodules.Request{App: app, Dir: dir, TempDir: n.t.TempDir(), Log: func(l string) { n.logf("%s", l) }}
}

// manifests writes a release's manifests.
func (n *node) manifests(docs ...string) string { return manifests(n.t, docs...) }

func manifests(t *testing.T, docs ...string) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(strings.Join(docs, "\n---\n")), 0o644))
	return dir
}

// get returns an object of the test's namespace, nil if it is not there.
func (n *node) get(group, kind, name string) *unstructured.Unstructured {
	n.t.Helper()
	o, err := n.c.Get(context.Background(), cluster.ID{Group: group, Kind: kind, Namespace: n.ns, Name: name})
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

// answer is what the application's web server says; "" if none answers.
func (n *node) answer(name string) string { return n.Answer(n.ns, name) }

// component is what a release says of an image.
func component(url string, img kube.Image) submodules.Component {
	return submodules.Component{Type: "image", URL: url, Digest: img.Config, DiffIDs: img.DiffIDs}
}

// load brings an image in under a reference, and returns the component.
func (n *node) load(m caller, app, url string, env ...string) submodules.Component {
	n.t.Helper()
	img := n.Image(n.t, "probe:any", nil, env...)
	r := submodules.LoadRequest{Request: n.request(app, ""), URL: url, Path: "-", Stdin: bytes.NewReader(img.Archive)}
	require.NoError(n.t, m.Load(context.Background(), r))
	n.t.Cleanup(func() {
		r := submodules.DeleteRequest{Request: n.request(app, ""), URL: url + "@" + img.Config.String()}
		_ = n.module().Delete(context.Background(), r)
	})
	return component(url, img)
}

// deployment is one that allows an update without a gap.
func deployment(name, image string, more ...string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 1
  progressDeadlineSeconds: 180
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
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 6}
%s`, name, name, name, image, strings.Join(more, "\n"))
}

// hasty gives a deployment that will not become ready little time.
func hasty(deployment string) string {
	return strings.Replace(deployment, "progressDeadlineSeconds: 180", "progressDeadlineSeconds: 8", 1)
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {k: v}"
}
