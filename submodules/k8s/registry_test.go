package k8s

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
	"github.com/mender-app/mender-app/testdata/bed/kube"
)

// registry is Debian's docker-registry on loopback, where containerd expects
// no TLS, behind a door at which those who change something give a password.
type registry struct {
	t       *testing.T
	host    string // of the door
	backend string
	dir     string
	stop    func()
}

func newRegistry(t *testing.T) *registry {
	kube.Start(t, "docker-registry")
	r := &registry{t: t, backend: freePort(t), dir: t.TempDir()}
	r.start()
	t.Cleanup(func() { r.stop() })
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.backend})
	to.ErrorLog = log.New(io.Discard, "", 0)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); req.Method != http.MethodGet && req.Method != http.MethodHead && (user != "edge" || password != "s3cret") {
			w.Header().Set("WWW-Authenticate", `Basic realm="edge"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		to.ServeHTTP(w, req)
	}))
	t.Cleanup(door.Close)
	r.host = strings.TrimPrefix(door.URL, "http://")
	return r
}

// freePort is an address on loopback that nothing listens on. It is below the
// ports that the kernel gives away, so that it stays free.
func freePort(t *testing.T) string {
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.Intn(10000)))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// start starts an empty registry.
func (r *registry) start() {
	r.t.Helper()
	root := filepath.Join(r.dir, fmt.Sprint(time.Now().UnixNano()))
	conf := filepath.Join(r.dir, "config.yml")
	require.NoError(r.t, os.WriteFile(conf, fmt.Appendf(nil, `version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: %s}, delete: {enabled: true}}
http: {addr: %s}
`, root, r.backend), 0o644))
	cmd := exec.Command("docker-registry", "serve", conf)
	require.NoError(r.t, cmd.Start())
	r.stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	require.Eventually(r.t, func() bool {
		resp, err := http.Get("http://" + r.backend + "/v2/")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, 2*time.Minute, 50*time.Millisecond)
}

// has reports whether the registry has what a pod's image says.
func (r *registry) has(ref string) bool {
	r.t.Helper()
	name, digest, ok := strings.Cut(strings.TrimPrefix(ref, r.host+"/"), "@")
	require.True(r.t, ok, ref)
	req, err := http.NewRequest(http.MethodHead, "http://"+r.host+"/v2/"+name+"/manifests/"+digest, nil)
	require.NoError(r.t, err)
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// TestRegistry holds that images reach the node by way of a registry where one
// is set, in both directions of an update, and leave it with their release.
func TestRegistry(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	reg := newRegistry(t)
	ctx := context.Background()
	var err error
	app := n.ns
	n.set.Registry, err = containerd.NewRegistry("registry://edge:wrong@"+reg.host+"/edge", "")
	require.NoError(t, err)
	wrong := n.Image(t, "probe:any", nil, "WRONG="+n.ns)
	load := submodules.LoadRequest{Request: n.request(app, ""), URL: "shop-" + n.ns + ":0", Path: "-", Stdin: bytes.NewReader(wrong.Archive)}
	m := n.module()
	err = m.Load(ctx, load)
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "registry "+reg.host+": push ")
	require.NotContains(t, err.Error(), "wrong@")
	load.URL += "@" + wrong.Config.String()
	require.NoError(t, m.Delete(ctx, submodules.DeleteRequest{Request: load.Request, URL: load.URL})) // and says that the registry does not let it
	require.NotEmpty(t, n.log())

	n.set.Registry, err = containerd.NewRegistry("registry://edge:s3cret@"+reg.host+"/edge", "")
	require.NoError(t, err)
	m = n.module()
	_, err = m.Reqs(ctx, submodules.ReqsRequest{Request: n.request(app, "")})
	require.NoError(t, err)
	// Names of the test's own, so that containerd has none of it by chance.
	one, two := "shop-"+n.ns+":1", "shop-"+n.ns+":2"
	c1, c2 := n.load(m, app, one, "VERSION=v1", n.ns), n.load(m, app, two, "VERSION=v2", n.ns)
	image := func() string {
		list, _ := n.field(n.get("apps", "Deployment", "web"), "spec.template.spec.containers").([]any)
		require.Len(t, list, 1)
		c, _ := list[0].(map[string]any)
		require.Equal(t, "IfNotPresent", c["imagePullPolicy"])
		ref, _ := c["image"].(string)
		require.True(t, strings.HasPrefix(ref, reg.host+"/edge/"+app+"@sha256:"), ref)
		return ref
	}
	first, second := n.manifests(deployment("web", one)), n.manifests(deployment("web", two))
	r := n.request(app, first)
	r.Components = []submodules.Component{c1}
	require.NoError(t, m.Rollout(ctx, r))
	require.Equal(t, "v1", n.answer("web"))
	ref1 := image()
	require.True(t, reg.has(ref1))
	require.Contains(t, n.Ctr("images", "ls", "-q"), ref1, "the node pulled it")
	problems, err := m.Verify(ctx, r)
	require.NoError(t, err)
	require.Empty(t, problems)

	require.NoError(t, m.Rollout(ctx, n.request(app, second)))
	require.Equal(t, "v2", n.answer("web"))
	ref2 := image()

	t.Log("a registry that lost everything gets back what a release needs")
	reg.stop()
	_, err = m.Reqs(ctx, submodules.ReqsRequest{Request: n.request(app, "")})
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "registry "+reg.host)
	reg.start()
	problems, err = m.Verify(ctx, r)
	require.NoError(t, err)
	require.Equal(t, []string{one + ": it is not in the registry " + reg.host + "/edge/"}, problems)
	require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: r}))
	require.Equal(t, "v1", n.answer("web"))
	require.Equal(t, ref1, image())
	require.True(t, reg.has(ref1))
	require.False(t, reg.has(ref2))

	t.Log("what a release does not need any more leaves the registry")
	again := n.request(app, "")
	again.Components = []submodules.Component{c2}
	require.NoError(t, m.Load(ctx, submodules.LoadRequest{Request: again, URL: two, Path: "-"})) // it is on the node: nothing is read
	require.True(t, reg.has(ref2))
	require.NoError(t, m.Delete(ctx, submodules.DeleteRequest{Request: again, URL: two + "@" + c2.Digest.String()}))
	require.False(t, reg.has(ref2))
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(app, "")}))
	require.False(t, reg.has(ref1))
}

// TestManyNodes: images in one node's containerd are not enough for several.
func TestManyNodes(t *testing.T) { // alone: a DaemonSet of another test would be sent to the other node as well
	n := newNode(t)
	n.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {unschedulable: true}\n", n.ns))
	t.Cleanup(func() { n.Kubectl("delete", "node", n.ns) })
	require.NoError(t, n.module().Rollout(context.Background(), n.request(n.ns, n.manifests(configMap("one")))))
	require.Contains(t, n.log(), "the images are on this one only")
	require.Contains(t, n.log(), "K8S_IMAGE_TARGET")
}
