// Package kube is the Kubernetes node of the tests. There is one on a machine: the
// first test of a process that asks for it starts it from what testdata/k8snode
// builds, and it stops when the process ends, in whatever way. Tests share it; each
// has its own namespaces. It must not know the product's packages.
package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Env names the directory of a node that already runs (testdata/k8snode/up.sh).
// Tests then use that node and leave it running.
const Env = "MENDER_APP_K8SNODE"

// Node is a running node.
type Node struct {
	Dir string // its files; see testdata/k8snode/up.sh

	api *http.Client
}

// Missing names what this machine lacks to run a node, or returns "".
func Missing() string {
	if os.Getuid() != 0 {
		return "root"
	}
	for _, need := range []string{"containerd", "runc", "/usr/lib/cni/bridge", "iptables", "ip", "openssl", "curl", "flock"} {
		if _, err := exec.LookPath(need); err != nil {
			return need + " (make setup)"
		}
	}
	if _, err := os.Stat(filepath.Join(directory(), "bin/hyper")); err != nil {
		return "the Kubernetes node (make k8snode)"
	}
	return ""
}

func directory() string { return filepath.Join(bed.Repository(), "build/k8snode") }

var shared struct {
	sync.Once
	node *Node
	err  error
	stop func()
}

// Start returns the node. If no node can run here or one of the commands is missing,
// it names what is missing and skips the test. In CI, where nothing may skip, it
// fails. Short runs skip.
func Start(t testing.TB, commands ...string) *Node {
	t.Helper()
	if testing.Short() {
		t.Skip("short: a Kubernetes node takes its time")
	}
	missing := ""
	if os.Getenv(Env) == "" {
		missing = Missing()
	}
	for _, c := range commands {
		if _, err := exec.LookPath(c); err != nil && missing == "" {
			missing = c
		}
	}
	switch {
	case missing == "":
	case os.Getenv("CI") == "true":
		t.Fatalf("missing in CI: %s", missing)
	default:
		t.Skipf("needs %s", missing)
	}
	shared.Do(func() { shared.node, shared.stop, shared.err = start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.node
}

// Run is for TestMain. It runs the tests, more of them in parallel than there are
// processors because they mostly wait, and stops the node. Without it the node stops
// by itself shortly after the process has ended.
func Run(m *testing.M) int {
	if err := flag.Set("test.parallel", "6"); err != nil { // the command line's goes before
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	return code
}

func start() (*Node, func(), error) {
	if dir := os.Getenv(Env); dir != "" {
		n, err := open(dir)
		return n, nil, err
	}
	// Its input ends with this process, and it then stops the node.
	cmd := exec.Command(filepath.Join(bed.Repository(), "testdata/k8snode/serve.sh"), directory())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.CreateTemp("", "mender-app-k8snode-*.log")
	if err != nil {
		return nil, nil, err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the Kubernetes node: %w", err)
	}
	stop := func() { _ = in.Close(); _ = cmd.Wait() }
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, ready); err != nil {
		stop()
		text, _ := os.ReadFile(log.Name())
		return nil, nil, fmt.Errorf("start the Kubernetes node: %s", bytes.TrimSpace(text))
	}
	n, err := open(directory())
	if err != nil {
		stop()
		return nil, nil, err
	}
	return n, stop, nil
}

// open connects to a running node.
func open(dir string) (*Node, error) {
	pki := filepath.Join(dir, "pki-node")
	cert, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &Node{Dir: dir, api: &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}}},
	}}, nil
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (n *Node) Kubeconfig() string { return filepath.Join(n.Dir, "admin.kubeconfig") }

// Containerd is the path of containerd's socket.
func (n *Node) Containerd() string { return filepath.Join(n.Dir, "run/containerd.sock") }

// Kubectl runs kubectl and returns its output with its errors.
func (n *Node) Kubectl(args ...string) string {
	cmd := exec.Command(filepath.Join(n.Dir, "bin/kubectl"), append([]string{"--kubeconfig", n.Kubeconfig()}, args...)...)
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out))
}

// Apply creates or changes objects, given as YAML or JSON, as a person would.
func (n *Node) Apply(t testing.TB, manifest string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(n.Dir, "bin/kubectl"), "--kubeconfig", n.Kubeconfig(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// Ctr runs containerd's client in the namespace of Kubernetes.
func (n *Node) Ctr(args ...string) string {
	out, _ := exec.Command("ctr", append([]string{"-a", n.Containerd(), "-n", "k8s.io"}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

// server is the API server's address. up.sh sets its port.
const server = "https://127.0.0.1:16443"

// Answer asks the web servers of the ready pods with the label app, as a Service
// does, and returns the first answer; "" if there is none.
func (n *Node) Answer(namespace, app string) string {
	var list struct {
		Items []struct {
			Metadata struct {
				DeletionTimestamp *string `json:"deletionTimestamp"`
			} `json:"metadata"`
			Status struct {
				PodIP      string `json:"podIP"`
				Conditions []struct {
					Type   string `json:"type"`
					Status string `json:"status"`
				} `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods?labelSelector=" + url.QueryEscape("app="+app)
	if err := n.get(path, &list); err != nil {
		return ""
	}
	for _, p := range list.Items {
		ready := false
		for _, c := range p.Status.Conditions {
			ready = ready || c.Type == "Ready" && c.Status == "True"
		}
		if !ready || p.Metadata.DeletionTimestamp != nil {
			continue
		}
		if said, err := fetch("http://" + p.Status.PodIP + ":8080/"); err == nil {
			return said
		}
	}
	return ""
}

func (n *Node) get(path string, to any) error {
	resp, err := n.api.Get(server + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(to)
}

func fetch(address string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return strings.TrimSpace(string(said)), err
}

// Watch asks an application repeatedly until it is stopped. It then returns how
// often it asked, and how often there was no answer. On a busy machine a pod can end
// between being listed and being asked, so it asks twice in a row.
func (n *Node) Watch(namespace, app string) (stop func() (asked, failed int)) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	var asked, failed int
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(30 * time.Millisecond):
			}
			asked++
			said := n.Answer(namespace, app)
			if said == "" {
				said = n.Answer(namespace, app)
			}
			if said == "" {
				failed++
			}
		}
	})
	return func() (int, int) { close(done); wg.Wait(); return asked, failed }
}

// KillServer kills the API server, and returns the function that starts it again. No
// other test may run meanwhile.
func (n *Node) KillServer(t testing.TB) (restart func()) {
	t.Helper()
	pidFile := filepath.Join(n.Dir, "run/kube-apiserver.pid")
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(pidFile)
	fail(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	fail(err)
	fail(syscall.Kill(pid, syscall.SIGKILL))
	var once sync.Once
	restart = func() {
		once.Do(func() {
			args, err := os.ReadFile(filepath.Join(n.Dir, "run/kube-apiserver.args"))
			fail(err)
			argv := strings.Split(strings.TrimSpace(string(args)), "\n")
			log, err := os.OpenFile(filepath.Join(n.Dir, "log/kube-apiserver.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			fail(err)
			defer log.Close()
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Stdout, cmd.Stderr = log, log
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives this process
			fail(cmd.Start())
			fail(os.WriteFile(pidFile, []byte(fmt.Sprintln(cmd.Process.Pid)), 0o644))
		})
	}
	t.Cleanup(restart)
	return restart
}
