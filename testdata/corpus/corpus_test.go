package corpus

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// The encoder and the device's decoder reproduce every pair, byte for byte. By
// default only the pairs that need no network are tested. With MENDER_APP_CORPUS_ALL
// all pairs are tested, in the directory that Dir returns (`make corpus`).
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	all := os.Getenv("MENDER_APP_CORPUS_ALL") != ""
	if all {
		var err error
		dir, err = Dir()
		require.NoError(t, err)
	}
	for _, p := range All() {
		if !p.Synthetic && !all {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			_, err := p.Build(t.Context(), dir)
			if errors.Is(err, ErrUnavailable) && os.Getenv("CI") != "true" {
				t.Skip(err)
			}
			require.NoError(t, err)
			temp := t.TempDir()
			old := openImage(t, filepath.Join(dir, p.Name, "v1.tar"), filepath.Join(temp, "v1"))
			next := openImage(t, filepath.Join(dir, p.Name, "v2.tar"), filepath.Join(temp, "v2"))
			whole, err := os.Create(filepath.Join(temp, "delta"))
			require.NoError(t, err)
			defer whole.Close()
			report, err := encoder.Encode(t.Context(), whole, []delta.Image{old}, next, encoder.Options{TempDir: temp})
			require.NoError(t, err)

			_, err = whole.Seek(0, io.SeekStart)
			require.NoError(t, err)
			r, err := decoder.New(whole)
			require.NoError(t, err)
			store := tarstore.New()
			for _, o := range old.Objects {
				f, err := o.Open()
				require.NoError(t, err)
				defer f.Close()
				require.NoError(t, store.Add(o.Digest, o.Kind, f.(io.ReaderAt), o.Size))
			}
			made := 0
			err = r.Apply(t.Context(), store, t.TempDir(), func(o delta.ObjectInfo) (delta.Sink, error) {
				made++
				want, err := next.Objects[o.Index].Open()
				if err != nil {
					return nil, err
				}
				return &comparing{want: want}, nil
			})
			require.NoError(t, err)
			omitted := 0
			for _, o := range report.Objects {
				if o.Encoding == delta.Omitted {
					omitted++
				}
			}
			require.Equal(t, len(next.Objects), made+omitted)
			t.Logf("%.1f KiB", float64(report.Size)/1024)
		})
	}
}

// comparing is a sink that returns an error at the first bytes that differ from
// want.
type comparing struct {
	want io.ReadCloser
	n    int64
}

func (c *comparing) Write(p []byte) (int, error) {
	b := make([]byte, len(p))
	if _, err := io.ReadFull(c.want, b); err != nil || !bytes.Equal(b, p) {
		return 0, fmt.Errorf("other bytes than in the original in the %d from %d on", len(p), c.n)
	}
	c.n += int64(len(p))
	return len(p), nil
}

func (c *comparing) Commit() error {
	defer c.want.Close()
	if n, _ := io.Copy(io.Discard, c.want); n != 0 {
		return fmt.Errorf("%d bytes of the original are missing", n)
	}
	return nil
}

func (c *comparing) Abort(error) { c.want.Close() }

// openImage unpacks the config and the layers of a docker-archive to files.
func openImage(t *testing.T, archive, dir string) delta.Image {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	objects := map[string]delta.Object{}
	var manifest []struct {
		Config string
		Layers []string
	}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if h.Name == "manifest.json" {
			require.NoError(t, json.NewDecoder(r).Decode(&manifest))
			continue
		}
		path := filepath.Join(dir, strings.ReplaceAll(h.Name, "/", "-"))
		out, err := os.Create(path)
		require.NoError(t, err)
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(out, sum), r)
		require.NoError(t, err)
		require.NoError(t, out.Close())
		objects[h.Name] = delta.Object{
			Digest: delta.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil))), Size: n, Kind: delta.Tar,
			Open: func() (io.ReadCloser, error) { return os.Open(path) },
		}
	}
	require.Len(t, manifest, 1)
	config := objects[manifest[0].Config]
	config.Kind = delta.Blob
	im := delta.Image{Name: filepath.Base(archive), Objects: []delta.Object{config}}
	for _, l := range manifest[0].Layers {
		im.Objects = append(im.Objects, objects[l])
	}
	return im
}

// Two builds of a pair give the same bytes. The pairs that do not depend on other
// publishers also match the recorded digests.
func TestReproducible(t *testing.T) {
	b, err := os.ReadFile("SHA256SUMS")
	require.NoError(t, err)
	recorded := map[string]string{}
	for line := range strings.Lines(string(b)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, ok, line)
		recorded[name] = sum
	}
	one, two := t.TempDir(), t.TempDir()
	for _, p := range All() {
		if !p.Synthetic {
			continue
		}
		for _, dir := range []string{one, two} {
			made, err := p.Build(context.Background(), dir)
			require.NoError(t, err)
			require.True(t, made)
		}
		first, err := os.ReadFile(filepath.Join(one, p.Name, "SHA256SUMS"))
		require.NoError(t, err)
		second, err := os.ReadFile(filepath.Join(two, p.Name, "SHA256SUMS"))
		require.NoError(t, err)
		require.Equal(t, string(first), string(second), p.Name)
		made, err := p.Build(context.Background(), one)
		require.NoError(t, err)
		require.False(t, made, "it is there")
		for line := range strings.Lines(string(first)) {
			sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			want, ok := recorded[p.Name+"/"+name]
			require.True(t, ok, "SHA256SUMS lacks %s/%s", p.Name, name)
			// The output of Go's compressors may change with the Go version.
			if p.Name != "compressed" || recorded["go"] == runtime.Version() {
				require.Equal(t, want, sum, "%s/%s", p.Name, name)
			}
		}
	}
}
