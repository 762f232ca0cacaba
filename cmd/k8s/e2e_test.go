//go:build k8snode

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// device is a Mender client and the product, as root sees them, beside a real
// Kubernetes node (make test-k8s).
type device struct {
	t         *testing.T
	dir, node string
	ns        string
}

func newDevice(t *testing.T) *device {
	t.Helper()
	node := os.Getenv("MENDER_APP_K8SNODE")
	if node == "" {
		t.Skip("no Kubernetes node: MENDER_APP_K8SNODE is not set; run make test-k8s")
	}
	for _, tool := range []string{"mender", "mender-artifact", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: install it", tool)
		}
	}
	d := &device{t: t, dir: t.TempDir(), node: node, ns: fmt.Sprintf("e%x", time.Now().UnixNano())}
	for name, text := range map[string]string{
		"etc/mender.conf":         "{}",
		"etc/artifact_info":       "artifact_name=factory\n",
		"etc/mender-app.conf":     fmt.Sprintf("persistent_store = %q\ndata_root = %q\n", d.dir+"/store", node),
		"etc/mender-app-k8s.conf": "K8S_KUBECONFIG=" + node + "/admin.kubeconfig\nK8S_CTR_ADDRESS=" + node + "/run/containerd.sock\nK8S_STABLE_TIME=1\n",
		"data/device_type":        "device_type=box\n",
	} {
		path := filepath.Join(d.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for program, place := range map[string]string{"app": "share/modules/v3", "k8s": "share/app-modules/v1", "app-gen": "bin"} {
		out, err := exec.Command("go", "build", "-o", filepath.Join(d.dir, place, program), "../"+program).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	t.Cleanup(func() {
		_ = d.command(filepath.Join(d.dir, "share/app-modules/v1/k8s"), "PURGE", "shop").Run()
		_ = d.kubectl("delete", "namespace", d.ns, "--wait=false")
	})
	return d
}

// command runs a program where /etc/mender and /usr/share/mender are the
// device's own.
func (d *device) command(args ...string) *exec.Cmd {
	script := `mount --bind "$D/share" /usr/share/mender && mount --bind "$D/etc" /etc/mender && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, "device"}, args...)...)
	cmd.Env = []string{"D=" + d.dir, "PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "K8S_NAMESPACE=" + d.ns}
	return cmd
}

func (d *device) mender(args ...string) (string, error) {
	cmd := d.command(append([]string{"mender", "--data", d.dir + "/data", "--no-syslog"}, args...)...)
	cmd.Env = cmd.Env[:3] // the client has nothing of Kubernetes in its environment
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (d *device) must(args ...string) {
	d.t.Helper()
	out, err := d.mender(args...)
	require.NoError(d.t, err, "mender %v\n%s", args, out)
}

func (d *device) provides(version string) {
	d.t.Helper()
	out, err := d.mender("show-provides")
	require.NoError(d.t, err)
	require.Contains(d.t, out, "rootfs-image.shop.version="+version+"\n")
	require.NotContains(d.t, out, "INCONSISTENT")
}

func (d *device) kubectl(args ...string) string {
	cmd := exec.Command(filepath.Join(d.node, "bin/kubectl"), append([]string{"--kubeconfig", d.node + "/admin.kubeconfig"}, args...)...)
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out))
}

// says is what the application answers, "" if it does not.
func (d *device) says() string {
	for _, ip := range strings.Fields(d.kubectl("-n", d.ns, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIP}")) {
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

// image writes an image of the probe, as docker save does, and returns its path.
func (d *device) image(version string, env ...string) string {
	probe, err := os.ReadFile(filepath.Join(d.node, "bin/probe"))
	require.NoError(d.t, err)
	layers := [][]byte{pack(d.t, "probe", probe), pack(d.t, "etc/version", []byte(version+d.ns))}
	var diffIDs, names []string
	files := map[string][]byte{}
	for _, l := range layers {
		sum := fmt.Sprintf("%x", sha256.Sum256(l))
		diffIDs, names = append(diffIDs, "sha256:"+sum), append(names, sum+"/layer.tar")
		files[sum+"/layer.tar"] = l
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/probe"}, "Env": append(env, "VERSION="+version)},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	require.NoError(d.t, err)
	name := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]any{map[string]any{"Config": name, "RepoTags": []string{"e2e/web:" + version}, "Layers": names}})
	require.NoError(d.t, err)
	files[name], files["manifest.json"] = config, manifest
	path := filepath.Join(d.t.TempDir(), "image.tar")
	f, err := os.Create(path)
	require.NoError(d.t, err)
	w := tar.NewWriter(f)
	for name, data := range files {
		add(d.t, w, name, data)
	}
	require.NoError(d.t, w.Close())
	require.NoError(d.t, f.Close())
	return path
}

func add(t *testing.T, w *tar.Writer, name string, data []byte) {
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg, ModTime: time.Unix(1, 0)}))
	_, err := w.Write(data)
	require.NoError(t, err)
}

func pack(t *testing.T, name string, data []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add(t, w, name, data)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// artifact makes an artifact; images are what --image takes.
func (d *device) artifact(version, manifest string, options ...string) string {
	d.t.Helper()
	dir := d.t.TempDir()
	require.NoError(d.t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(manifest), 0o644))
	out := filepath.Join(d.t.TempDir(), "a.mender")
	args := append([]string{
		"--application-name", "shop", "--artifact-name", "shop-" + version, "--software-version", version, "--device-type", "box",
		"--platform", "linux/" + runtime.GOARCH, "--orchestrator", "k8s", "--manifests-dir", dir, "--output-path", out, "--k8s-namespace", d.ns,
	}, options...)
	said, err := exec.Command(filepath.Join(d.dir, "bin/app-gen"), args...).CombinedOutput()
	require.NoError(d.t, err, "%s", said)
	return out
}

func manifests(version, more string) string {
	return strings.ReplaceAll(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  progressDeadlineSeconds: 10
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: web
        image: e2e/web:VERSION
        imagePullPolicy: Never
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cmVERSION}
`, "VERSION", version) + more
}

// TestThroughTheMenderClient plays the life of an application on Kubernetes:
// installed, updated by a deep delta without a gap, saved from a release that
// never becomes ready and from a broken one, and taken back by the operator.
func TestThroughTheMenderClient(t *testing.T) {
	d := newDevice(t)
	v1, v2, v3, v4 := d.image("1"), d.image("2"), d.image("3", "UNREADY=1"), d.image("4")
	full := func(path string) string { return "--image=docker-archive:" + path }

	// A first release that fails leaves nothing.
	_, err := d.mender("install", d.artifact("3", manifests("3", ""), full(v3)))
	require.Error(t, err)
	require.Contains(t, d.kubectl("get", "namespace", d.ns), "NotFound")
	list, err := d.command(filepath.Join(d.dir, "share/app-modules/v1/k8s"), "LIST", "shop").Output()
	require.NoError(t, err)
	require.JSONEq(t, "[]", string(list))

	d.must("install", d.artifact("1", manifests("1", ""), full(v1)))
	require.Equal(t, "1", d.says())
	d.must("commit")
	d.provides("1")

	done := make(chan struct{})
	var watching sync.WaitGroup
	asked, failed := 0, 0
	watching.Add(1)
	go func() {
		defer watching.Done()
		for {
			select {
			case <-done:
				return
			default:
			}
			if asked++; d.says() == "" {
				failed++
			}
		}
	}()
	delta := d.artifact("2", manifests("2", ""), "--deep-delta", "--image=docker-archive:"+v1+",docker-archive:"+v2)
	d.must("install", delta)
	require.Equal(t, "2", d.says())
	d.must("commit")
	d.provides("2")
	close(done)
	watching.Wait()
	require.Positive(t, asked)
	require.Zero(t, failed, "of %d", asked)
	fi, err := os.Stat(delta)
	require.NoError(t, err)
	t.Logf("the delta's artifact has %d bytes; asked %d times", fi.Size(), asked)
	require.Contains(t, d.kubectl("-n", d.ns, "get", "configmap", "cm1"), "NotFound")
	sets := d.kubectl("-n", d.ns, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.labels.pod-template-hash}")

	said, err := d.mender("install", d.artifact("3", manifests("3", ""), full(v3)))
	require.Error(t, err)
	require.Contains(t, said, "probe 3 listens", "the pod's log is in the client's")
	require.Equal(t, "2", d.says())
	require.Equal(t, sets, d.kubectl("-n", d.ns, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.labels.pod-template-hash}"))
	require.Contains(t, d.kubectl("-n", d.ns, "get", "configmap", "cm3"), "NotFound")
	d.provides("2")

	said, err = d.mender("install", d.artifact("4", manifests("4", "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: broken}\ndataa: {}\n"), full(v4)))
	require.Error(t, err)
	require.Contains(t, said, "app.yaml:26: ConfigMap/broken: unknown field dataa")
	require.Equal(t, "2", d.says())
	d.provides("2")

	d.must("install", d.artifact("4", manifests("4", ""), full(v4)))
	require.Equal(t, "4", d.says())
	d.must("rollback")
	require.Equal(t, "2", d.says())
	d.provides("2")
	require.Contains(t, d.kubectl("-n", d.ns, "get", "configmap", "cm4"), "NotFound")
	require.NotContains(t, d.kubectl("-n", d.ns, "get", "configmap", "cm2"), "NotFound")
}
