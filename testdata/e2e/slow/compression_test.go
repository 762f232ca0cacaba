package slow

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// An artifact installs whatever it is compressed with: as app-gen writes it, and as
// mender-artifact does, by both Mender clients and by mender-app.
func TestCompressions(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			w := e2e.Watch(t, d)
			install := func(version, file string) {
				e2e.Mender(t, d, "install", file)
				e2e.Mender(t, d, "commit")
				e2e.Says(t, w, "web "+version)
				d.MustProvide(t, e2e.Provides(version))
			}
			install("1", e2e.Release(t, d, "1", "", "--compression", "gzip"))
			install("2", e2e.Release(t, d, "2", "", "--compression", "lzma"))
			three := withLZMA(t, e2e.Release(t, d, "3", ""))
			install("3", three)
			require.Contains(t, d.MustRun(t, "mender-app", "rollback", "shop"), "shop-2")
			e2e.Says(t, w, "web 2")
			d.MustRun(t, "mender-app", "install", "--force", "--unsigned", "--commit", three)
			e2e.Says(t, w, "web 3")
		})
	}
}

// withLZMA writes an artifact anew with mender-artifact, which compresses it as
// xz -9 does.
func withLZMA(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command("mender-artifact", args...).CombinedOutput()
		require.NoError(t, err, "mender-artifact %v\n%s", args, out)
	}
	require.NoError(t, os.Mkdir(in("files"), 0o755))
	require.NoError(t, os.Mkdir(in("meta"), 0o755))
	run("dump", "--files", in("files"), "--meta-data", in("meta"), file)
	out := file + ".lzma.mender"
	run("write", "module-image", "-T", "app", "-n", "shop-3", "-t", bed.Type, "--compression", "lzma", "-o", out,
		"--software-filesystem", "data-partition", "--software-name", "shop", "--software-version", "3",
		"-f", in("files/images.tar.gz"), "-f", in("files/manifests.tar.gz"), "-m", in("meta/0000.meta-data"))
	return out
}
