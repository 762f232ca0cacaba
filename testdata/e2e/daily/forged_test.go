package daily

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/submodules/imagestore/storetest"
	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// rewritten is a tar, compressed or not, with its members edited; nil drops one.
func rewritten(t *testing.T, data []byte, edit func(name string, data []byte) (string, []byte)) []byte {
	t.Helper()
	var in io.Reader = bytes.NewReader(data)
	packed := bytes.HasPrefix(data, []byte("\x1f\x8b"))
	if packed {
		z, err := gzip.NewReader(in)
		require.NoError(t, err)
		in = z
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			if h.Name, b = edit(h.Name, b); b == nil {
				continue
			}
		}
		h.Size = int64(len(b))
		require.NoError(t, w.WriteHeader(h))
		_, err = w.Write(b)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	if !packed {
		return out.Bytes()
	}
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	_, err := zw.Write(out.Bytes())
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	return z.Bytes()
}

// forged is a signed artifact with the members of its images payload edited.
// The header, the manifest of checksums and the signature stay.
func forged(t *testing.T, d *bed.Device, file string, edit func(name string, data []byte) (string, []byte)) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	inside := func(prefix string, edit func([]byte) []byte) func(string, []byte) (string, []byte) {
		return func(name string, b []byte) (string, []byte) {
			if strings.HasPrefix(name, prefix) {
				b = edit(b)
			}
			return name, b
		}
	}
	data = rewritten(t, data, inside("data/0000.tar", func(b []byte) []byte {
		return rewritten(t, b, inside("images.tar", func(b []byte) []byte { return rewritten(t, b, edit) }))
	}))
	out := d.Share("forged.mender")
	require.NoError(t, os.WriteFile(out, data, 0o644))
	return out
}

// member is the data of the first member of an artifact's images payload whose name
// has this suffix.
func member(t *testing.T, d *bed.Device, file, ending string) (found []byte) {
	t.Helper()
	forged(t, d, file, func(name string, b []byte) (string, []byte) {
		if found == nil && strings.HasSuffix(name, ending) {
			found = slices.Clone(b)
		}
		return name, b
	})
	require.NotNil(t, found)
	return found
}

// A payload that differs from what the signed metadata announces is refused before
// it costs anything: the header and its signature are valid, and the payload's
// checksum is known only at its end.
func TestForgedPayloads(t *testing.T) {
	d := e2e.Device(t)
	key := e2e.ECDSAKey(t)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	e2e.WritePEM(t, d.Path("/etc/mender/key.pub"), "PUBLIC KEY", public)
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"ArtifactVerifyKey": "/etc/mender/key.pub"}`), 0o644))
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	secret := filepath.Join(t.TempDir(), "key")
	e2e.WritePEM(t, secret, "PRIVATE KEY", private)

	one := e2e.Generate(t, d, "shop", "shop-1", "1", e2e.EditionCompose(1), e2e.Archive(t, e2e.Edition(t, 1)), "--key", secret)
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	full, small := d.Share("full.mender"), d.Share("delta.mender")
	e2e.Generate(t, d, "shop", "shop-3", "3", e2e.EditionCompose(3), e2e.Archive(t, e2e.Edition(t, 3)), "--key", secret, "--output-path", full)
	_, next, _ := strings.Cut(e2e.Archive(t, e2e.Edition(t, 3)), "=")
	e2e.Generate(t, d, "shop", "shop-3", "3", e2e.EditionCompose(3), "--image=mender:"+one+","+next, "--key", secret, "--output-path", small)
	image, delta := member(t, d, full, "/image.img"), member(t, d, small, "/image.delta")

	replace := func(ending string, data []byte) func(string, []byte) (string, []byte) {
		return func(name string, b []byte) (string, []byte) {
			if strings.HasSuffix(name, ending) {
				b = data
			}
			return name, b
		}
	}
	bomb := rewritten(t, image, func() func(string, []byte) (string, []byte) {
		done := false
		return func(name string, b []byte) (string, []byte) {
			if strings.HasPrefix(name, "blobs/") && len(b) > 100_000 && !done && name != firstLayer(t, image) {
				done = true
				return name, storetest.SparseLayer(t, len(b))
			}
			return name, b
		}
	}())
	require.NotEqual(t, image, bomb)
	for _, c := range []struct {
		name, file string
		edit       func(string, []byte) (string, []byte)
		says       string
	}{
		{"a delta in the place of a full image", full, replace("/image.img", delta), `it is a delta, and a full image is announced`},
		{"a delta by its own name for a full image", full, func(name string, b []byte) (string, []byte) {
			if dir, ok := strings.CutSuffix(name, "/image.img"); ok {
				return dir + "/image.delta", delta
			}
			return name, b
		}, `not in the format that the metadata announces, full`},
		{"a full image in the place of a delta", small, replace("/image.delta", image), `beyond its limits`},
		{"a delta with a layer of 1 GiB", small, replace("/image.delta", storetest.InflatedDelta(t, delta)), `of the delta has 1073741824 bytes, and`},
		{"a layer with a sparse file of 1 GiB", full, replace("/image.img", bomb), `take more than the`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := forged(t, d, c.file, c.edit)
			before, free := e2e.Unchanging(d.MustState(t)), freeBytes(t, d)
			start := time.Now()
			said := e2e.MenderFails(t, d, "install", file)
			require.Less(t, time.Since(start), 10*time.Second)
			e2e.RequireErrorLine(t, c.says, said)
			require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
			require.Less(t, free-freeBytes(t, d), int64(256<<20), "the disk")
		})
	}
	// The genuine ones still install.
	e2e.Mender(t, d, "install", small)
	e2e.Mender(t, d, "rollback")
	e2e.Mender(t, d, "install", full)
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, e2e.Provides("3"))
	d.MustRun(t, "mender-app", "verify", "shop")
}

// firstLayer is the name of the first layer in an image's archive.
func firstLayer(t *testing.T, archive []byte) (first string) {
	t.Helper()
	rewritten(t, archive, func(name string, b []byte) (string, []byte) {
		if first == "" && strings.HasPrefix(name, "blobs/") && len(b) > 10_000 {
			first = name
		}
		return name, b
	})
	return first
}

// freeBytes is what the file system of the device's engine has free.
func freeBytes(t *testing.T, d *bed.Device) int64 {
	t.Helper()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(d.Path("/data"), &st))
	return int64(st.Bavail) * st.Bsize
}
