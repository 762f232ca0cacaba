// Package gentest makes container images, archives and registries for the
// generator's tests: small, real, and the same bytes each time.
package gentest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Files are the files of one layer: name and content.
type Files map[string]string

// Image makes an image of the layers, for a platform as linux/arm/v7. With "" its config does
// not name one.
func Image(t testing.TB, platform string, layers ...Files) v1.Image {
	t.Helper()
	p, err := v1.ParsePlatform(platform)
	must(t, err)
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: p.OS, Architecture: p.Architecture, Variant: p.Variant,
		RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{Cmd: []string{"/app"}},
	})
	must(t, err)
	for _, files := range layers {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, n := range slices.Sorted(maps.Keys(files)) {
			must(t, w.WriteHeader(&tar.Header{Name: n, Mode: 0o755, Size: int64(len(files[n])), ModTime: time.Unix(1e9, 0), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}))
			_, err := io.WriteString(w, files[n])
			must(t, err)
		}
		must(t, w.Close())
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
		must(t, err)
		img, err = mutate.AppendLayers(img, l)
		must(t, err)
	}
	return img
}

// Text is n bytes that compress somewhat and differ by seed.
func Text(seed string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%s line %d %x\n", seed, i, uint64(i)*uint64(i)*2654435761)
	}
	return b.String()[:n]
}

// Digest is the digest of an image's config.
func Digest(t testing.TB, img v1.Image) string {
	t.Helper()
	d, err := img.ConfigName()
	must(t, err)
	return d.String()
}

// Index puts images for several platforms under one name.
func Index(t testing.TB, images ...v1.Image) v1.ImageIndex {
	t.Helper()
	idx := v1.ImageIndex(empty.Index)
	for _, img := range images {
		c, err := img.ConfigFile()
		must(t, err)
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}}})
	}
	return idx
}

// Registry serves a registry on loopback until the test ends and returns its
// host:port. With a user, it asks for that user and password.
func Registry(t testing.TB, user, password string) string {
	t.Helper()
	return Serve(t, user, password, nil)
}

// Memory is a registry in memory that asks for no login.
func Memory() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

// Serve is Registry with something around it; nil for nothing.
func Serve(t testing.TB, user, password string, around func(http.Handler) http.Handler) string {
	t.Helper()
	h := Memory()
	if around != nil {
		h = around(h)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); user != "" && (!ok || u != user || p != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Push puts an image or an index into a registry.
func Push(t testing.TB, ref string, what any, user, password string) {
	t.Helper()
	r, err := name.ParseReference(ref)
	must(t, err)
	auth := remote.WithAuth(&authn.Basic{Username: user, Password: password})
	if user == "" {
		auth = remote.WithAuth(authn.Anonymous)
	}
	switch w := what.(type) {
	case v1.Image:
		must(t, remote.Write(r, w, auth))
	case v1.ImageIndex:
		must(t, remote.WriteIndex(r, w, auth))
	default:
		t.Fatalf("cannot push a %T", what)
	}
}

// DockerArchive writes images as docker save did before version 25.
func DockerArchive(t testing.TB, path string, images map[string]v1.Image) string {
	t.Helper()
	refs := map[name.Reference]v1.Image{}
	for n, img := range images {
		r, err := name.NewTag(n)
		must(t, err)
		refs[r] = img
	}
	must(t, tarball.MultiRefWriteToFile(path, refs))
	return path
}

// Layout writes an OCI layout directory; ref is the annotation a name is in.
func Layout(t testing.TB, dir, ref string, what any) string {
	t.Helper()
	p, err := layout.Write(dir, empty.Index)
	must(t, err)
	opt := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref})
	switch w := what.(type) {
	case v1.Image:
		must(t, p.AppendImage(w, opt))
	case v1.ImageIndex:
		must(t, p.AppendIndex(w, opt))
	}
	return filepath.Clean(dir)
}
