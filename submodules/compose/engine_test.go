package compose

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
)

// The test binary is the sub-module too.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_DOCKER_COMPOSE") != "" {
		watchInterval = time.Hour // the engine's events have to do
		os.Exit(submodules.Main(Orchestrator{Sandbox: true}, "docker-compose", "test", os.Args[1:]))
	}
	os.Exit(m.Run())
}

// missing skips a test whose component is not installed; in CI it fails it.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// host is the engine to test with.
func host() string {
	for _, n := range []string{"MENDER_APP_TEST_DOCKER_HOST", "DOCKER_HOST"} {
		if h := os.Getenv(n); h != "" {
			return h
		}
	}
	return client.DefaultDockerHost
}

// installed is a sub-module whose verbs a test calls, and whose Config it may change.
type installed struct {
	*submodules.Module
	submodules.Client
}

// bench is an engine, the sub-module, and a device's directories.
type bench struct {
	*testing.T
	cli   *client.Client
	mod   installed
	store string
	app   string
	log   strings.Builder
}

var (
	compileOnce sync.Once
	program     []byte
	compileErr  error
)

func compile() ([]byte, error) {
	compileOnce.Do(func() {
		dir, err := os.MkdirTemp("", "prog")
		if err != nil {
			compileErr = err
			return
		}
		defer os.RemoveAll(dir)
		out := filepath.Join(dir, "prog")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "./testdata/prog")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			compileErr = fmt.Errorf("%w: %s", err, b)
			return
		}
		program, compileErr = os.ReadFile(out)
	})
	return program, compileErr
}

// newBench starts a test that needs an engine. Its application has a name of
// its own, and everything of it is gone afterwards.
func newBench(t *testing.T) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("tests on a real engine are not short")
	}
	cli, err := client.NewClientWithOpts(client.WithHost(host()), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { cli.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := cli.Ping(ctx); err != nil {
		missing(t, "this test needs a Docker engine: none at %s", host())
	}
	if _, err := exec.LookPath("docker"); err != nil {
		missing(t, "this test needs the docker command")
	}
	bin, conf := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "docker-compose")))
	require.NoError(t, os.WriteFile(filepath.Join(conf, "mender-app-docker-compose.conf"), []byte("HEALTH_DEADLINE=20\nHEALTH_WINDOW=300ms\n"), 0o600))
	mod, err := submodules.Find(bin, "docker-compose")
	require.NoError(t, err)
	b := &bench{T: t, cli: cli, mod: installed{mod, mod.Client()}, store: t.TempDir(), app: fmt.Sprintf("t%08x", rand.Uint32())}
	mod.Config = submodules.Config{
		ConfigDir: conf,
		Env:       []string{"TEST_DOCKER_COMPOSE=1", "DOCKER_HOST=" + host()},
		Deadline:  2 * time.Minute,
		Log:       func(l string) { b.log.WriteString(l + "\n"); t.Log(l) },
	}
	t.Cleanup(func() { b.clean(b.app) })
	return b
}

// clean removes everything an application had, whatever the sub-module left.
func (b *bench) clean(app string) {
	ctx := context.Background()
	list, _ := b.cli.ContainerList(ctx, container.ListOptions{All: true})
	for _, c := range list {
		if strings.HasPrefix(c.Labels[labelDir], b.store) || strings.Contains(c.Image, app) {
			_ = b.cli.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
	nets, _ := b.cli.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(filters.Arg("name", app))})
	for _, n := range nets {
		_ = b.cli.NetworkRemove(ctx, n.ID)
	}
	imgs, _ := b.cli.ImageList(ctx, dimage.ListOptions{All: true})
	for _, i := range imgs {
		for _, tag := range i.RepoTags {
			if strings.Contains(tag, app) {
				_, _ = b.cli.ImageRemove(ctx, tag, dimage.RemoveOptions{Force: true})
			}
		}
	}
}

type entry struct {
	name string
	data []byte
}

func layer(t *testing.T, files ...entry) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o755, Size: int64(len(f.data)), ModTime: time.Unix(1.7e9, 0)}))
		_, err := w.Write(f.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	require.NoError(t, err)
	return l
}

// image makes an image of the program and one more layer with the version.
func (b *bench) image(version string) (v1.Image, submodules.Component) {
	b.Helper()
	return b.over(version)
}

// over is image with layers below the program.
func (b *bench) over(version string, below ...v1.Layer) (v1.Image, submodules.Component) {
	b.Helper()
	prog, err := compile()
	require.NoError(b, err)
	img, err := mutate.AppendLayers(empty.Image, append(below, layer(b.T, entry{"prog", prog}), layer(b.T, entry{"version", []byte(b.app + version)}))...)
	require.NoError(b, err)
	cf, err := img.ConfigFile()
	require.NoError(b, err)
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", goarch()
	cf.Config.Entrypoint = []string{"/prog"}
	cf.Config.Cmd = []string{"sleep"}
	img, err = mutate.ConfigFile(img, cf)
	require.NoError(b, err)
	config, err := img.ConfigName()
	require.NoError(b, err)
	comp := submodules.Component{Type: "image", URL: b.app + ":1", Digest: digest.Digest(config.String())}
	for _, d := range cf.RootFS.DiffIDs {
		comp.DiffIDs = append(comp.DiffIDs, digest.Digest(d.String()))
	}
	return img, comp
}

func goarch() string {
	out, err := exec.Command("go", "env", "GOARCH").Output()
	if err != nil {
		return "amd64"
	}
	return strings.TrimSpace(string(out))
}

// archive writes the image as a docker-archive, as `docker save` does.
func (b *bench) archive(img v1.Image, ref string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "image.tar")
	tag, err := gname.NewTag(ref)
	require.NoError(b, err)
	require.NoError(b, tarball.WriteToFile(path, tag, img))
	return path
}

// release makes manifests the current ones: <store>/<app>/manifests is a link.
func (b *bench) release(id string, files map[string]string) string {
	b.Helper()
	dir := filepath.Join(b.store, b.app, "releases", id, "manifests")
	for name, text := range files {
		require.NoError(b, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	link := filepath.Join(b.store, b.app, "manifests")
	_ = os.Remove(link)
	require.NoError(b, os.Symlink(filepath.Join("releases", id, "manifests"), link))
	return link
}

// load loads an image, staged, and returns its component.
func (b *bench) load(version string) submodules.Component {
	b.Helper()
	img, comp := b.image(version)
	require.NoError(b, b.mod.Load(b.Context(), submodules.LoadRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{comp}}, URL: comp.URL, Path: b.archive(img, b.app+"-other:9"), Stage: true}))
	return comp
}

// service returns the containers of a service, running or not.
func (b *bench) service(name string) []container.Summary {
	b.Helper()
	list, err := b.cli.ContainerList(b.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", labelService+"="+name), filters.Arg("label", labelDir+"="+filepath.Join(b.store, b.app, "manifests")))})
	require.NoError(b, err)
	return list
}

// one returns the only container of a service.
func (b *bench) one(name string) container.Summary {
	b.Helper()
	list := b.service(name)
	require.Len(b, list, 1, "containers of %s", name)
	return list[0]
}

// tags returns the references of an image, sorted by the engine.
func (b *bench) tags(ref string) []string {
	b.Helper()
	res, err := b.cli.ImageInspect(b.Context(), ref)
	if err != nil {
		return nil
	}
	return res.RepoTags
}
