package daily

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// withLayer writes an image with one more layer on top and returns app-gen's option
// for it.
func withLayer(t *testing.T, i bed.Image, layer []byte) string {
	t.Helper()
	img, err := i.Build()
	require.NoError(t, err)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	require.NoError(t, err)
	img, err = mutate.AppendLayers(img, l)
	require.NoError(t, err)
	tag, err := name.NewTag(i.Ref)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, tarball.WriteToFile(path, tag, img))
	return "--image=docker-archive:" + path
}

// A layer of other writers: it begins with a pax global header, as git archive writes
// it, and has a file below an absolute link, as packages merged into one layer have. An
// image with it is installed and updated by a delta, is undamaged, also for a commit
// after a restart, and nothing of its repair outlives the application.
func TestLayersOfOtherWriters(t *testing.T) {
	e2e.OnEngines(t, func(t *testing.T, d *bed.Device) {
		e2e.ShortHealthWindow(t, d)
		w := e2e.Watch(t, d)
		release := func(version string, options ...string) string {
			var b bytes.Buffer
			tw := tar.NewWriter(&b)
			for _, h := range []*tar.Header{
				{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": version}},
				{Typeflag: tar.TypeDir, Name: "srv/", Mode: 0o755},
				{Typeflag: tar.TypeSymlink, Name: "www", Linkname: "/srv", Mode: 0o777},
				{Typeflag: tar.TypeReg, Name: "www/page", Mode: 0o644, Size: 3000},
			} {
				require.NoError(t, tw.WriteHeader(h))
			}
			_, err := tw.Write(bytes.Repeat([]byte("page of "+version+"\n."), 3000)[:3000])
			require.NoError(t, err)
			require.NoError(t, tw.Close())
			options = append(options, withLayer(t, e2e.Web(t, version, ""), b.Bytes()), e2e.Archive(t, e2e.Stock(t)))
			return e2e.Generate(t, d, "shop", "shop-"+version, version, e2e.Compose(version), options...)
		}
		first := release("1", "--deep-delta=false")
		e2e.Mender(t, d, "install", first)
		e2e.Mender(t, d, "commit")
		require.Contains(t, d.MustRun(t, "mender-app", "verify"), "all components are whole")

		e2e.Mender(t, d, "install", release("2", "--base", first, "--no-depends"))
		boot := d.Share("boot_id")
		require.NoError(t, os.WriteFile(boot, []byte("00000000-0000-4000-8000-000000000002\n"), 0o644))
		d.MustRun(t, "mount", "--bind", boot, "/proc/sys/kernel/random/boot_id")
		e2e.Mender(t, d, "commit")
		e2e.Says(t, w, "web 2")
		before := d.MustState(t)
		require.Contains(t, d.MustRun(t, "mender-app", "verify", "--repair", "--from", first, "shop"), "all components are whole")
		e2e.SameApplication(t, before, d.MustState(t))

		d.MustRun(t, "truncate", "--size=0", unpacked(t, d, "srv/page", "page of 1"))
		r, err := d.Run("mender-app", "verify", "shop")
		require.NoError(t, err)
		require.Equal(t, 5, r.Code, r.Output())
		require.Contains(t, r.Stdout, "www/page has 0 bytes, not 3000")
		d.MustRun(t, "mender-app", "verify", "--repair", "--from", first, "shop")
		require.Contains(t, d.MustRun(t, "mender-app", "verify"), "all components are whole")
		e2e.Says(t, w, "web 2")

		// As an earlier version left it.
		record := "/data/mender-app/.mender-app/repair/shop"
		d.MustRun(t, "sh", "-c", `mkdir -p $1 && echo '{"format":1,"application":"shop","release":"2-shop-2"}' >$1/request.json`, "sh", record)
		d.MustRun(t, "mender-app", "stop", "shop")
		d.MustRun(t, "mender-app", "purge", "shop")
		require.NoFileExists(t, d.Path(record))
		d.MustRun(t, "mender-app", "resume")
	})
}
