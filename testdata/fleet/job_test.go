package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/bed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Run(m)) }

// gateway is this machine for the pods of the node (testdata/k8snode/up.sh).
const gateway = "10.244.0.1"

// registry is Debian's docker-registry, on all addresses of this machine.
type registry struct {
	t    *testing.T
	port string
	dir  string
	cmd  *exec.Cmd
}

func startRegistry(t *testing.T) *registry {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	r := &registry{t: t, port: port, dir: t.TempDir()}
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *registry) start() {
	r.t.Helper()
	config := filepath.Join(r.dir, "config.yml")
	require.NoError(r.t, os.WriteFile(config, fmt.Appendf(nil, `version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %s}}
http: {addr: "0.0.0.0:%s"}
`, filepath.Join(r.dir, "data"), r.port), 0o644))
	r.cmd = exec.Command("docker-registry", "serve", config)
	require.NoError(r.t, r.cmd.Start())
	bed.Eventually(r.t, 2*time.Minute, "the registry answers", func() bool {
		answer, err := http.Get("http://127.0.0.1:" + r.port + "/v2/")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
}

func (r *registry) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	_ = r.cmd.Wait()
}

// TestJobOnNode: an Indexed Job of eight shards on a real node makes the deltas of a plan in a
// real registry. Two of its pods are killed, and the registry is restarted. The artifact is
// the one that a single process makes.
func TestJobOnNode(t *testing.T) {
	node := kube.Start(t, "docker-registry", "busybox")
	const shards = 8
	programs, err := bed.Programs()
	require.NoError(t, err)
	program := filepath.Join(programs, "app-gen")
	dir := t.TempDir()
	gen := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "app-gen %s\n%s", strings.Join(args, " "), text)
		return string(text)
	}
	inventory := "version\n"
	require.NoError(t, os.Mkdir(filepath.Join(dir, "releases"), 0o755))
	for n := 1; n <= shards+1; n++ {
		url := fmt.Sprintf("shop/web:%d", n)
		img := gentest.Image(t, bed.Platform(), gentest.Files{"data": gentest.Text("base", 1<<20), "app": gentest.Text(fmt.Sprint("release ", n), 300_000)})
		archive := gentest.DockerArchive(t, filepath.Join(dir, fmt.Sprintf("%d.tar", n)), map[string]v1.Image{url: img})
		manifests := filepath.Join(dir, fmt.Sprint("manifests-", n))
		require.NoError(t, os.Mkdir(manifests, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(manifests, "compose.yaml"), fmt.Appendf(nil, "services: {web: {image: %q}}\n", url), 0o644))
		name := fmt.Sprintf("shop-%d", n)
		gen("--artifact-name", name, "--software-version", fmt.Sprint(n), "--application-name", "shop", "--orchestrator", "docker-compose", "--device-type", "box",
			"--platform", bed.Platform(), "--manifests-dir", manifests, "--image", "docker-archive:"+archive, "--fast", "--output-path", "releases/"+name+".mender")
		if n <= shards {
			inventory += name + "\n"
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "devices.csv"), []byte(inventory), 0o644))
	gen("fleet", "plan", "--inventory", "devices.csv", "--releases", "releases", "-n", fmt.Sprint("shop-", shards+1), "-o", "plan.json")

	r := startRegistry(t)
	one, fleet := "oci:127.0.0.1:"+r.port+"/shop/one", "oci:127.0.0.1:"+r.port+"/shop/fleet"
	gen("fleet", "run", "plan.json", one, "--releases", "releases")

	// The node has an image with app-gen and sh, and a volume with the plan and the releases.
	read := func(path string) []byte {
		t.Helper()
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	busybox, err := exec.LookPath("busybox")
	require.NoError(t, err)
	const image = "docker.io/library/app-gen:fleet"
	// The registry has no TLS, which the configuration has to allow.
	insecure := fmt.Appendf(nil, "[[registry]]\nlocation = %q\ninsecure = true\n", net.JoinHostPort(gateway, r.port))
	img := node.Image(t, image, map[string][]byte{"bin/sh": read(busybox), "bin/app-gen": read(program), "etc/containers/registries.conf": insecure}, "PATH=/bin")
	out := node.Ctr("images", "import", img.File(t))
	require.Contains(t, node.Ctr("images", "ls", "-q"), image, out)
	t.Cleanup(func() { node.Ctr("images", "rm", image) })
	namespace := fmt.Sprintf("fleet-%d", time.Now().UnixNano())
	node.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, namespace))
	t.Cleanup(func() {
		node.Kubectl("delete", "namespace", namespace, "--wait=false")
		node.Kubectl("delete", "pv", namespace)
	})
	node.Apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  claimRef: {namespace: %[1]s, name: fleet}
  hostPath: {path: %[2]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %[1]s, name: fleet}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: %[1]s
  resources: {requests: {storage: 1Gi}}
`, namespace, dir))
	job := gen("fleet", "job", "kubernetes", "plan.json", "oci:"+net.JoinHostPort(gateway, r.port)+"/shop/fleet", "--releases", "releases", "--shards", fmt.Sprint(shards), "--image", image, "--claim", "fleet")
	file := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(file, []byte(job), 0o644))
	// No pod ends before the registry is restarted.
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGSTOP))
	name := node.Kubectl("-n", namespace, "create", "-f", file, "-o", "name")
	require.True(t, strings.HasPrefix(name, "job.batch/app-gen-fleet-"), name)
	about := func() string {
		return node.Kubectl("-n", namespace, "get", name, "-o", "yaml") + "\n" + node.Kubectl("-n", namespace, "get", "pods", "-o", "wide") + "\n" + node.Kubectl("-n", namespace, "logs", name) + "\n" + node.Kubectl("-n", namespace, "get", "events")
	}
	defer func() {
		if t.Failed() {
			t.Log(about())
		}
	}()
	field := func(path string) string {
		return node.Kubectl("-n", namespace, "get", name, "-o", "jsonpath={"+path+"}")
	}

	killed := map[string]bool{}
	bed.Eventually(t, 5*time.Minute, "two pods run and are killed", func() bool {
		for pod := range strings.FieldsSeq(node.Kubectl("-n", namespace, "get", "pods", "--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}")) {
			if !killed[pod] && len(killed) < 2 {
				killed[pod] = true
				node.Kubectl("-n", namespace, "delete", "pod", pod, "--force", "--grace-period=0")
			}
		}
		return len(killed) == 2
	})
	require.Empty(t, field(".status.succeeded"))
	r.kill()
	r.start()
	bed.Eventually(t, 10*time.Minute, "the job is complete", func() bool {
		require.Empty(t, field(`.status.conditions[?(@.type=="Failed")].message`))
		return field(`.status.conditions[?(@.type=="Complete")].status`) == "True"
	})
	require.Contains(t, gen("fleet", "status", "plan.json", fleet), fmt.Sprintf("made: %d of %[1]d deltas", shards))
	for store, file := range map[string]string{one: "one.mender", fleet: "fleet.mender"} {
		gen("fleet", "publish", "plan.json", store, "--source", "https://downloads.example/content", "-o", file)
	}
	require.True(t, bytes.Equal(read(filepath.Join(dir, "one.mender")), read(filepath.Join(dir, "fleet.mender"))))
}
