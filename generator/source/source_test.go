package source

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/gentest"
)

func opener(t *testing.T, platform string) *Opener {
	t.Helper()
	o := &Opener{TempDir: t.TempDir()}
	if platform != "" {
		p, err := image.ParsePlatform(platform)
		require.NoError(t, err)
		o.Platform = p
	}
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("DOCKER_HOST", "unix://"+t.TempDir()+"/none.sock")
	return o
}

func open(t *testing.T, o *Opener, s string) (*Found, error) {
	t.Helper()
	spec, err := Parse(s)
	require.NoError(t, err)
	return o.Open(t.Context(), spec, "")
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a:b=c.tar")
	require.NoError(t, os.WriteFile(odd, nil, 0o600))
	for in, want := range map[string]Spec{
		"web:1":                          {Kind: Registry, Ref: "web:1"},
		"docker://host:5000/a/web:1":     {Kind: Registry, Ref: "host:5000/a/web:1"},
		"host:5000/web:1=web:2":          {Kind: Registry, Ref: "host:5000/web:1", URL: "web:2"},
		"docker-daemon:web:1":            {Kind: Daemon, Ref: "web:1"},
		"docker-daemon:1234567890ab=w:1": {Kind: Daemon, Ref: "1234567890ab", URL: "w:1"},
		"docker-archive:x.tar":           {Kind: DockerArchive, Path: "x.tar"},
		"docker-archive:x.tar:web:1":     {Kind: DockerArchive, Path: "x.tar", Ref: "web:1"},
		"docker-archive:x.tar=web:1":     {Kind: DockerArchive, Path: "x.tar", URL: "web:1"},
		"docker-archive:" + odd:          {Kind: DockerArchive, Path: odd},
		"docker-archive:" + odd + "=w:1": {Kind: DockerArchive, Path: odd, URL: "w:1"},
		"oci:dir:latest=web:1":           {Kind: OCI, Path: "dir", Ref: "latest", URL: "web:1"},
		"oci-archive:x.tar":              {Kind: OCI, Path: "x.tar"},
		"mender:v1.mender#web:1":         {Kind: Artifact, Path: "v1.mender", Ref: "web:1"},
		"mender:v1.mender#web:1=w:2":     {Kind: Artifact, Path: "v1.mender", Ref: "web:1", URL: "w:2"},
		"web:1@sha256:" + hex64:          {Kind: Registry, Ref: "web:1@sha256:" + hex64},
	} {
		got, err := Parse(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
		again, err := Parse(got.String())
		require.NoError(t, err, in)
		want.URL = ""
		require.Equal(t, want, again, "what String writes is what Parse reads")
	}
	for in, want := range map[string]string{
		"":                        `"" is not an image reference`,
		"Web:1":                   `"Web:1" is not an image reference`,
		"a b":                     "not an image reference",
		"./x.tar":                 "not an image reference",
		"web:1=":                  `"" is not a name for an image`,
		"web:1=A B":               "is not a name for an image",
		"docker-archive:":         "names no file",
		"dir:/srv/web":            "there is no kind of source dir:",
		"tarball:./web.tar":       "there is no kind of source tarball:",
		"dir:web":                 "there is no kind of source dir:",
		"tarball:web.tar=web:1":   "there is no kind of source tarball:",
		"docker-daemon:A B":       "not an image reference",
		"oci::latest":             "names no file",
		"web:1=w@sha256:" + hex64: "by its digest alone",

		"web:1=mender-app.local/shop:1":       "devices assign themselves",
		"web:1=Mender-App.local:443/shop/x:1": "devices assign themselves",
	} {
		_, err := Parse(in)
		require.ErrorContains(t, err, want, in)
	}
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func FuzzParse(f *testing.F) {
	for _, s := range []string{"web:1", "oci:a:b=c:d", "mender:x#y", "docker-archive:=", "a@sha256:" + hex64} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := Parse(s)
		if err != nil {
			return
		}
		if spec.URL != "" && CheckURL(spec.URL) != nil {
			t.Fatalf("%q gives the name %q", s, spec.URL)
		}
		if spec.Kind != Registry && spec.Kind != Daemon && spec.Path == "" {
			t.Fatalf("%q names no file", s)
		}
	})
}

func TestNames(t *testing.T) {
	for _, n := range []string{"web", "web:latest", "docker.io/library/web", "index.docker.io/library/web:latest", "web:latest@sha256:" + hex64} {
		require.Equal(t, "index.docker.io/library/web:latest", Normal(n), n)
	}
	require.NotEqual(t, Normal("web:1"), Normal("web:2"))
	require.Equal(t, Repository("web:1"), Repository("docker.io/library/web"))
	require.Equal(t, "web:1", withoutDigest("web:1@sha256:"+hex64))
	require.Equal(t, "host:1/web@sha256:"+hex64, withoutDigest("host:1/web@sha256:"+hex64))
}

// content reads an image whole and compares it with its digests.
func content(t *testing.T, f *Found) {
	t.Helper()
	require.NoError(t, image.Verify(f.Image))
	for _, l := range f.Image.Layers {
		require.Positive(t, l.Size)
	}
}

func TestRegistry(t *testing.T) {
	host := gentest.Registry(t, "", "")
	v7 := gentest.Image(t, "linux/arm/v7", gentest.Files{"a": "7"}, gentest.Files{"b": gentest.Text("x", 1<<16)})
	v6 := gentest.Image(t, "linux/arm/v6", gentest.Files{"a": "6"})
	amd := gentest.Image(t, "linux/amd64", gentest.Files{"a": "amd"})
	gentest.Push(t, host+"/multi:1", gentest.Index(t, v6, v7, amd), "", "")
	gentest.Push(t, host+"/six:1", gentest.Index(t, v6, amd), "", "")
	gentest.Push(t, host+"/one:1", amd, "", "")

	t.Run("chooses from an index", func(t *testing.T) {
		f, err := open(t, opener(t, "linux/arm/v7"), host+"/multi:1")
		require.NoError(t, err)
		require.Equal(t, gentest.Digest(t, v7), f.Image.ConfigDigest.String())
		require.Equal(t, host+"/multi:1", f.URL)
		require.Empty(t, f.Warnings)
		content(t, f)
	})
	t.Run("takes an older variant and says so", func(t *testing.T) {
		f, err := open(t, opener(t, "linux/arm/v7"), host+"/six:1=six:1")
		require.NoError(t, err)
		require.Equal(t, gentest.Digest(t, v6), f.Image.ConfigDigest.String())
		require.Equal(t, "six:1", f.URL)
		require.Len(t, f.Warnings, 1)
		require.Contains(t, f.Warnings[0], "there is no image for linux/arm/v7, taking linux/arm/v6")
	})
	t.Run("by digest", func(t *testing.T) {
		d, err := amd.Digest()
		require.NoError(t, err)
		f, err := open(t, opener(t, "linux/amd64"), host+"/one:1@"+d.String())
		require.NoError(t, err)
		require.Equal(t, host+"/one:1", f.URL, "an engine knows it by its tag")
		_, err = open(t, opener(t, "linux/amd64"), host+"/one@"+d.String())
		require.ErrorContains(t, err, "by its digest alone")
		_, err = open(t, opener(t, "linux/amd64"), host+"/one@"+d.String()+"=one:1")
		require.NoError(t, err)
	})
	t.Run("wrong platform", func(t *testing.T) {
		for _, ref := range []string{"/multi:1", "/one:1"} {
			o := opener(t, "linux/riscv64")
			_, err := open(t, o, host+ref)
			var p *image.PlatformError
			require.True(t, errors.As(err, &p), "%v", err)
			require.ErrorContains(t, err, "linux/amd64", "it names what there is")
			left, err := os.ReadDir(o.TempDir)
			require.NoError(t, err)
			require.Empty(t, left, "nothing is fetched")
		}
	})
	t.Run("missing", func(t *testing.T) {
		_, err := open(t, opener(t, "linux/amd64"), host+"/none:1")
		var e *Error
		require.True(t, errors.As(err, &e))
		require.True(t, e.NotFound)
		require.EqualError(t, err, host+"/none:1: the registry has no such image")
	})
	t.Run("unreachable", func(t *testing.T) {
		_, err := open(t, opener(t, "linux/amd64"), "127.0.0.1:1/none:1")
		require.ErrorContains(t, err, "127.0.0.1:1/none:1: the registry cannot be reached")
		require.NotContains(t, err.Error(), "\n")
	})
	t.Run("layers shared by two images are fetched once", func(t *testing.T) {
		both := gentest.Image(t, "linux/amd64", gentest.Files{"a": "amd"}, gentest.Files{"more": "x"})
		gentest.Push(t, host+"/both:1", both, "", "")
		o := opener(t, "linux/amd64")
		_, err := open(t, o, host+"/one:1")
		require.NoError(t, err)
		_, err = open(t, o, host+"/both:1")
		require.NoError(t, err)
		left, err := os.ReadDir(o.TempDir)
		require.NoError(t, err)
		require.Len(t, left, 2)
	})
}

func TestRegistryCredentials(t *testing.T) {
	host := gentest.Registry(t, "me", "secret")
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": "x"})
	gentest.Push(t, host+"/web:1", img, "me", "secret")

	o := opener(t, "linux/amd64")
	_, err := open(t, o, host+"/web:1")
	require.ErrorContains(t, err, "the registry refuses: not logged in")

	config := os.Getenv("DOCKER_CONFIG")
	require.NoError(t, os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"auths":{"`+host+`":{"auth":"bWU6d3Jvbmc="}}}`), 0o600))
	_, err = open(t, o, host+"/web:1")
	require.ErrorContains(t, err, "the registry refuses the login of me: its password is wrong or has expired")
	require.NoError(t, os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"auths":{"`+host+`":{"auth":"bWU6c2VjcmV0"}}}`), 0o600))
	f, err := open(t, o, host+"/web:1")
	require.NoError(t, err)
	content(t, f)

	t.Run("from a credential helper", func(t *testing.T) {
		o := opener(t, "linux/amd64")
		bin := t.TempDir()
		helper := "#!/bin/sh\ncat >/dev/null\necho '{\"ServerURL\":\"x\",\"Username\":\"me\",\"Secret\":\"secret\"}'\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, "docker-credential-test"), []byte(helper), 0o755))
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(`{"credHelpers":{"`+host+`":"test"}}`), 0o600))
		f, err := open(t, o, host+"/web:1")
		require.NoError(t, err)
		content(t, f)
	})
}

// If a connection breaks in the middle of a layer, it is opened again, a few times.
func TestBrokenConnection(t *testing.T) {
	var breaks, asked atomic.Int32
	host := gentest.Serve(t, "", "", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				asked.Add(1)
				if breaks.Add(-1) >= 0 {
					w.Header().Set("Content-Length", "100000")
					w.Write([]byte("half of it"))
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	// the layer's content and the config's are blobs both
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": gentest.Text("a", 1<<18)})
	gentest.Push(t, host+"/web:1", img, "", "")
	o := opener(t, "linux/amd64")
	var done int64
	o.Progress = func(_ string, n, _ int64) { done = n }
	config := gentest.Digest(t, img)

	spec, err := Parse(host + "/web:1")
	require.NoError(t, err)
	ref, err := name.ParseReference(spec.Ref)
	require.NoError(t, err)
	remoteImage, err := remote.Image(ref)
	require.NoError(t, err)
	_, err = remoteImage.RawConfigFile()
	require.NoError(t, err)

	breaks.Store(2)
	got, err := o.download(t.Context(), spec.Ref, remoteImage, image.Platform{})
	require.NoError(t, err)
	require.Equal(t, config, got.ConfigDigest.String())
	content(t, &Found{Image: got})
	require.Equal(t, got.Layers[0].BlobSize, done, "progress ends at the size")

	breaks.Store(100)
	o = opener(t, "linux/amd64")
	asked.Store(0)
	_, err = o.download(t.Context(), spec.Ref, remoteImage, image.Platform{})
	require.ErrorContains(t, err, "does not match expected size")
	require.EqualValues(t, attempts, asked.Load())
	left, err := os.ReadDir(o.TempDir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestMirrors(t *testing.T) {
	host := gentest.Registry(t, "", "")
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": "x"})
	gentest.Push(t, host+"/library/web:1", img, "", "")
	gentest.Push(t, host+"/proxy/team/app:1", img, "", "")

	dir := t.TempDir()
	daemon := filepath.Join(dir, "daemon.json")
	require.NoError(t, os.WriteFile(daemon, []byte(`{"registry-mirrors":["http://`+host+`/"],"insecure-registries":["10.0.0.0/8","plain.example:5000"]}`), 0o600))
	conf := filepath.Join(dir, "registries.conf")
	require.NoError(t, os.WriteFile(conf, []byte(`
[[registry]]
prefix = "registry.example/team"
location = "registry.example/team"
[[registry.mirror]]
location = "127.0.0.1:1/broken"
[[registry.mirror]]
location = "`+host+`/proxy/team"
insecure = true
[[registry]]
location = "bad.example"
blocked = true
`), 0o600))
	var c Config
	require.NoError(t, c.docker(daemon))
	require.NoError(t, c.containers(conf))
	require.NoError(t, c.docker(filepath.Join(dir, "none")))

	o := opener(t, "linux/amd64")
	o.Config = c
	f, err := open(t, o, "web:1")
	require.NoError(t, err)
	require.Equal(t, "web:1", f.URL, "a mirror is not part of the name")

	f, err = open(t, o, "registry.example/team/app:1")
	require.NoError(t, err)
	require.Equal(t, "registry.example/team/app:1", f.URL)
	require.Len(t, f.Warnings, 1)
	require.Contains(t, f.Warnings[0], "mirror 127.0.0.1:1/broken/app")

	_, err = open(t, o, "bad.example/app:1")
	require.ErrorContains(t, err, "blocked by registries.conf")

	for host, want := range map[string]bool{"127.0.0.1:5000": true, "localhost": true, "[::1]:5000": true, "10.1.2.3:80": true, "plain.example:5000": true, "plain.example": false, "192.168.1.1": false} {
		require.Equal(t, want, c.isInsecure(host), host)
	}
	require.NoError(t, os.WriteFile(conf, []byte("x ="), 0o600))
	require.ErrorContains(t, c.containers(conf), conf)
	require.NoError(t, os.WriteFile(daemon, []byte("{"), 0o600))
	require.ErrorContains(t, c.docker(daemon), daemon)
}

func TestDaemonThatIsNotThere(t *testing.T) {
	_, err := open(t, opener(t, "linux/amd64"), "docker-daemon:web:1")
	require.ErrorContains(t, err, "the Docker daemon at unix:///")
	require.ErrorContains(t, err, "cannot be reached")
	t.Setenv("DOCKER_HOST", "ssh://x")
	_, err = open(t, &Opener{TempDir: t.TempDir()}, "docker-daemon:web:1")
	require.ErrorContains(t, err, "DOCKER_HOST=ssh://x is not supported")
}

func TestOpenCompressed(t *testing.T) {
	for name, blob := range map[string]string{"short": "x", "empty": "", "plain": "plain content"} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(blob), 0o600))
		r, err := openCompressed(path)
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, blob, string(b))
		require.NoError(t, r.Close())
	}
}

// A blob that was fetched once is not fetched again, and one that is damaged in the
// cache is.
func TestCachedBlobs(t *testing.T) {
	var fetched atomic.Int32
	host := gentest.Serve(t, "", "", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				fetched.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": gentest.Text("a", 1<<16)}, gentest.Files{"b": gentest.Text("b", 1<<16)})
	gentest.Push(t, host+"/web:1", img, "", "")
	dir := filepath.Join(t.TempDir(), "cache")
	get := func() int32 {
		t.Helper()
		fetched.Store(0)
		o := opener(t, "linux/amd64")
		var err error
		o.Cache, err = OpenCache(dir, 1<<20)
		require.NoError(t, err)
		var mu sync.Mutex // blobs are fetched side by side
		var done, total int64
		o.Progress = func(_ string, n, of int64) {
			mu.Lock()
			defer mu.Unlock()
			done, total = max(done, n), of
		}
		f, err := open(t, o, host+"/web:1")
		require.NoError(t, err)
		content(t, f)
		require.Equal(t, total, done)
		return fetched.Load()
	}
	require.EqualValues(t, 3, get(), "the config and two layers")
	require.EqualValues(t, 1, get(), "the config")
	entries, err := filepath.Glob(filepath.Join(dir, "blob-*"))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.NoError(t, os.Remove(entries[0]))
	require.NoError(t, os.WriteFile(entries[0], []byte("damaged"), 0o600))
	require.EqualValues(t, 2, get())
	require.EqualValues(t, 1, get())
}

// An image of an OCI layout is chosen by the name that containerd gives it, as ctr image
// export and docker save write it, or by its ref.name alone.
func TestNamesOfLayouts(t *testing.T) {
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	for ref, img := range map[string]string{"1": "web", "2": "side"} {
		require.NoError(t, p.AppendImage(gentest.Image(t, "linux/amd64", gentest.Files{"a": img}), layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": ref, "io.containerd.image.name": "docker.io/shop/" + img + ":" + ref,
		})))
	}
	for what, url := range map[string]string{":1": "1", ":shop/web:1": "shop/web:1", ":docker.io/shop/side:2": "docker.io/shop/side:2", ":2=side:2": "side:2"} {
		f, err := open(t, opener(t, "linux/amd64"), "oci:"+dir+what)
		require.NoError(t, err, what)
		if what == ":1" { // a tag is no name: containerd's counts
			url = "docker.io/shop/web:1"
		}
		require.Equal(t, url, f.URL, what)
	}
	_, err = open(t, opener(t, "linux/amd64"), "oci:"+dir+":3")
	require.ErrorContains(t, err, `no image named "3" in the archive`)
}

// --platform decides what an image is for that does not say it: the same from each source and
// in each run. If nothing says it, or several are asked for, the hint says what to do.
func TestNoPlatform(t *testing.T) {
	img := gentest.Image(t, "", gentest.Files{"a": "1"})
	host := gentest.Registry(t, "", "")
	gentest.Push(t, host+"/web:1", img, "", "")
	digests := map[image.Digest]bool{}
	for _, what := range []string{
		"oci:" + gentest.Layout(t, t.TempDir(), "web:1", img),
		"docker-archive:" + gentest.DockerArchive(t, filepath.Join(t.TempDir(), "web.tar"), map[string]v1.Image{"web:1": img}),
		host + "/web:1",
	} {
		f, err := open(t, opener(t, "linux/arm/v7"), what)
		require.NoError(t, err, what)
		require.Equal(t, "linux/arm/v7", f.Image.Platform.String())
		require.Empty(t, f.Image.Manifests, "no manifest names this config")
		c, err := image.ParseConfig(f.Image.Config)
		require.NoError(t, err)
		require.Equal(t, "v7", c.Variant)
		require.Contains(t, string(f.Image.Config), `"Cmd":["/app"]`)
		require.Equal(t, []string{what + ": the image's config does not name os and architecture: it gets linux/arm/v7 from --platform, and so another digest"}, f.Warnings)
		content(t, f)
		digests[f.Image.ConfigDigest] = true

		several := opener(t, "linux/arm/v7")
		several.Several = true
		for o, hint := range map[*Opener]string{opener(t, ""): "give --platform", several: "docker-archive:web-{platform}.tar"} {
			_, err := open(t, o, what)
			var e *Error
			require.ErrorAs(t, err, &e, what)
			require.EqualError(t, err, what+": "+image.ErrNoPlatform.Error())
			require.Contains(t, e.Hint, hint)
			require.Contains(t, e.Hint, "crane mutate --set-platform")
		}
	}
	require.Len(t, digests, 1)
	err := opener(t, "linux/arm/v7").complete(&Found{From: Spec{Kind: Artifact, Path: "old.mender"}, Image: &image.Image{Config: []byte("{}")}})
	require.ErrorIs(t, err, image.ErrNoPlatform, "devices have it so")
}

// The platform that the index names counts more than --platform, if the config names none.
func TestPlatformOfIndex(t *testing.T) {
	img := gentest.Image(t, "", gentest.Files{"a": "1"})
	entry := func(img v1.Image, arch string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}}
	}
	host := gentest.Registry(t, "", "")
	for name, c := range map[string]struct {
		entries       []mutate.IndexAddendum
		platform, err string
	}{
		"another":                        {[]mutate.IndexAddendum{entry(img, "arm64")}, "", "no image for platform linux/amd64; there is linux/arm64"},
		"one config for two":             {[]mutate.IndexAddendum{entry(img, "arm64"), entry(img, "amd64")}, "linux/amd64", ""},
		"one that says it":               {[]mutate.IndexAddendum{{Add: img}, {Add: gentest.Image(t, "linux/amd64", gentest.Files{"a": "2"})}}, "linux/amd64", ""},
		"two that do not, one that does": {[]mutate.IndexAddendum{{Add: img}, {Add: gentest.Image(t, "", gentest.Files{"a": "3"})}, {Add: gentest.Image(t, "linux/amd64", gentest.Files{"a": "2"})}}, "linux/amd64", ""},
		"several do not say it":          {[]mutate.IndexAddendum{{Add: img}, {Add: gentest.Image(t, "", gentest.Files{"a": "2"})}}, "", "several images"},
	} {
		idx := mutate.AppendManifests(empty.Index, c.entries...)
		gentest.Push(t, host+"/web:1", idx, "", "")
		for _, what := range []string{"oci:" + gentest.Layout(t, t.TempDir(), "web:1", idx), host + "/web:1"} {
			o := opener(t, "linux/amd64")
			o.Several = true // the index says it for each
			f, err := open(t, o, what)
			if c.err != "" {
				require.ErrorContains(t, err, c.err, "%s: %s", name, what)
				continue
			}
			require.NoError(t, err, "%s: %s", name, what)
			require.Equal(t, c.platform, f.Image.Platform.String())
			require.Equal(t, len(c.entries) == 3 || name == "one that says it", len(f.Warnings) == 0)
		}
	}
}

// An older release may have one image under two names: it is one image, and both find it.
func TestOlderImageWithTwoNames(t *testing.T) {
	a := older{images: []olderImage{{url: "shop/web:1", digest: "sha256:1"}, {url: "shop/worker:1", digest: "sha256:1"}}}
	for ref, want := range map[string]string{"": "shop/web:1", "shop/web:1": "shop/web:1", "shop/worker:1": "shop/worker:1"} {
		got, err := a.choose(Spec{Path: "shop-1.mender", Ref: ref}, "")
		require.NoError(t, err)
		require.Equal(t, want, got.url)
	}
	a.images = append(a.images, olderImage{url: "shop/db:1", digest: "sha256:2"})
	_, err := a.choose(Spec{Path: "shop-1.mender"}, "")
	require.ErrorContains(t, err, "holds several images")
}
