package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/bed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Run(m)) }

// device is a Mender client and the product, as root sees them, beside a real
// Kubernetes node.
type device struct {
	*kube.Node
	t   *testing.T
	dir string
	app string // the shop, which every device calls otherwise: they share a cluster
	ns  string // of the shop
}

func newDevice(t *testing.T, settings ...string) *device {
	t.Helper()
	d := &device{Node: kube.Start(t, "mender", "mender-artifact", "unshare"), t: t, dir: t.TempDir(), ns: fmt.Sprintf("e%x", time.Now().UnixNano())}
	d.app = "shop-" + d.ns
	if !slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, "K8S_KUBECONFIG=") }) {
		settings = append(settings, "K8S_KUBECONFIG="+d.Kubeconfig())
	}
	settings = append(settings, "K8S_CTR_ADDRESS="+d.Containerd(), "K8S_STABLE_TIME=1", "K8S_TERMINATE_TIMEOUT=180")
	for name, text := range map[string]string{
		"etc/mender.conf":         "{}",
		"etc/artifact_info":       "artifact_name=factory\n",
		"etc/mender-app.conf":     fmt.Sprintf("persistent_store = %q\ndata_root = %q\n", d.dir+"/store", d.Dir),
		"etc/mender-app-k8s.conf": strings.Join(settings, "\n") + "\n",
		"data/device_type":        "device_type=box\n",
	} {
		path := filepath.Join(d.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	programs, err := bed.Programs()
	require.NoError(t, err)
	for program, place := range map[string]string{"app": "share/modules/v3", "k8s": "share/app-modules/v1", "app-gen": "bin", "mender-app": "bin"} {
		to := filepath.Join(d.dir, place, program)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		out, err := exec.Command("cp", filepath.Join(programs, program), to).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	t.Cleanup(func() {
		for _, app := range []string{d.app, "store-" + d.ns} {
			_ = d.command(d.submodule(), "PURGE", app).Run()
		}
		d.Kubectl("delete", "namespace", d.ns, d.ns+"-store", "--wait=false")
	})
	return d
}

func (d *device) submodule() string { return filepath.Join(d.dir, "share/app-modules/v1/k8s") }

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

// byHand calls a program of the device's, which has to end well.
func (d *device) byHand(args ...string) string {
	d.t.Helper()
	out, err := d.command(args...).CombinedOutput()
	require.NoError(d.t, err, "%v\n%s", args, out)
	return string(out)
}

// installs brings a release in for good.
func (d *device) installs(artifact string) {
	d.t.Helper()
	d.must("install", artifact)
	d.must("commit")
}

// provides holds what the client believes.
func (d *device) provides(version string) {
	d.t.Helper()
	out, err := d.mender("show-provides")
	require.NoError(d.t, err)
	require.Contains(d.t, out, "data-partition."+d.app+".version="+version+"\n")
	require.NotContains(d.t, out, "INCONSISTENT")
}

// at holds that the device is at a release of the shop, and nothing else.
func (d *device) at(version string) {
	d.t.Helper()
	require.Equal(d.t, version, d.says())
	d.provides(version)
	var maps []string
	// The inventory bears the application's label too.
	for _, name := range strings.Fields(d.in("get", "configmap", "-l", "mender-app.io/app="+d.app+",!mender-app.io/inventory", "-o", "name")) {
		maps = append(maps, strings.TrimPrefix(name, "configmap/"))
	}
	require.Equal(d.t, []string{"cm" + version}, maps)
}

// in runs kubectl in the shop's namespace.
func (d *device) in(args ...string) string {
	return d.Kubectl(append([]string{"-n", d.ns}, args...)...)
}

// says is what the application answers, "" if it does not.
func (d *device) says() string { return d.Answer(d.ns, "web") }

// everything is what there is in the shop's namespace, with its revisions. The
// status of what runs is no one's change.
func (d *device) everything() string {
	return d.in("get", "deployments,replicasets,pods,services,persistentvolumeclaims", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.generation}{"\n"}{end}`) + "\n" +
		d.in("get", "configmaps,secrets", "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}`)
}

// ref is what the shop's manifests call an image: on the node that the tests
// share nothing else has that name.
func (d *device) ref(version string) string { return "e2e/" + d.ns + ":" + version }

// image makes an image of a version and returns app-gen's name for it. The
// images of two devices differ.
func (d *device) image(version string, env ...string) string {
	files := map[string][]byte{"etc/version": []byte(version + d.ns)}
	return "docker-archive:" + d.Image(d.t, d.ref(version), files, append(env, "VERSION="+version)...).File(d.t)
}

// artifact makes an artifact of the shop.
func (d *device) artifact(version, manifest string, options ...string) string {
	d.t.Helper()
	return d.artifactOf(d.app, d.ns, version, manifest, options...)
}

func (d *device) artifactOf(app, namespace, version, manifest string, options ...string) string {
	d.t.Helper()
	dir := d.t.TempDir()
	manifest = strings.ReplaceAll(manifest, "e2e/web:", d.ref(""))
	require.NoError(d.t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(manifest), 0o644))
	out := filepath.Join(d.t.TempDir(), "a.mender")
	args := append([]string{
		"--application-name", app, "--artifact-name", app + "-" + version, "--software-version", version, "--device-type", "box",
		"--platform", "linux/" + runtime.GOARCH, "--orchestrator", "k8s", "--manifests-dir", dir, "--output-path", out, "--k8s-namespace", namespace,
	}, options...)
	if !slices.Contains(options, "--deep-delta") { // to code whole images takes seconds
		args = append(args, "--deep-delta=false")
	}
	said, err := exec.Command(filepath.Join(d.dir, "bin/app-gen"), args...).CombinedOutput()
	require.NoError(d.t, err, "%s", said)
	return out
}

// manifests are a release of the shop: a Deployment that allows an update
// without a gap, a ConfigMap that only this version has, and more.
func manifests(version string, more ...string) string {
	deadline := "180"
	if version == "3" { // the one that never becomes ready
		deadline = "8"
	}
	docs := append([]string{`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  progressDeadlineSeconds: DEADLINE
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
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 6}
`, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cmVERSION}\n"}, more...)
	return strings.NewReplacer("VERSION", version, "DEADLINE", deadline).Replace(strings.Join(docs, "---\n"))
}
