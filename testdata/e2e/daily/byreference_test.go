package daily

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A release by reference: the artifact has no images, and a device fetches the one form
// that it needs, with the Mender client and without, from a web server, past a mirror that
// lies, and from a directory. What cannot be fetched changes nothing.
func TestByReference(t *testing.T) {
	d := e2e.Device(t)
	one := e2e.Release(t, d, "1", "")
	whole := e2e.Generate(t, d, "shop", "shop-2", "2", e2e.Compose("2"), "--base", one, "--full-fallback",
		e2e.Archive(t, e2e.Web(t, "2", "")), e2e.Archive(t, e2e.Stock(t)))
	bad := e2e.Release(t, d, "3", "crash")
	place, lies := d.Share("place"), d.Share("lies")
	programs, err := bed.Programs()
	require.NoError(t, err)
	reference := func(artifact string, options ...string) string {
		out := strings.TrimSuffix(artifact, ".mender") + "-reference.mender"
		cmd := exec.Command(filepath.Join(programs, "app-gen"), append([]string{"by-reference", artifact, place, "-o", out}, options...)...)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return out
	}
	small := reference(whole, "--source", "http://127.0.0.1:8099/")
	require.Less(t, e2e.FileSize(t, small), e2e.FileSize(t, whole)/2)
	badSmall := reference(bad, "--source", "http://127.0.0.1:8099/")

	// A mirror that lies: it has the names, and not the content.
	require.NoError(t, os.Mkdir(lies, 0o755))
	entries, err := os.ReadDir(place)
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.WriteFile(filepath.Join(lies, e.Name()), []byte("no"), 0o644))
	}
	conf := d.Path("/etc/mender/mender-app.conf")
	plain, err := os.ReadFile(conf)
	require.NoError(t, err)
	mirrors := func(list string) {
		require.NoError(t, os.WriteFile(conf, append(plain, "\ncontent_mirrors = "+list+"\n"...), 0o600))
	}
	nothingLeft := func() {
		t.Helper()
		require.Empty(t, strings.TrimSpace(d.MustRun(t, "sh", "-c", "ls -A /data/mender-app/.mender-app/content 2>/dev/null || true")))
	}

	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	w := e2e.Watch(t, d)
	e2e.Says(t, w, "web 1")

	// No server: nothing has changed.
	before := e2e.Unchanging(d.MustState(t))
	require.Contains(t, e2e.MenderFails(t, d, "install", small), "no place has it")
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
	d.MustProvide(t, e2e.Provides("1"))

	server := d.Command(t.Context(), "python3", "-m", "http.server", "8099", "--bind", "127.0.0.1", "--directory", place)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	server.Stderr = log
	require.NoError(t, server.Start())
	defer server.Process.Kill()
	bed.Eventually(t, time.Minute, "the web server answers", func() bool {
		r, err := d.Run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8099")
		return err == nil && r.Code == 0
	})

	// Past the mirror that lies; the delta alone is fetched.
	mirrors(`["` + lies + `"]`)
	out := d.MustRun(t, "mender-app", "check", small)
	require.Contains(t, out, "of images that are not in the artifact")
	e2e.Mender(t, d, "install", small)
	e2e.Says(t, w, "web 2")
	e2e.Mender(t, d, "rollback")
	e2e.Says(t, w, "web 1")
	e2e.Mender(t, d, "install", small)
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	d.MustProvide(t, e2e.Provides("2"))
	nothingLeft()
	asked, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	require.Less(t, strings.Count(string(asked), " 200 "), len(entries), "not every form is fetched:\n%s", asked)

	// A release that fails goes back, from a directory.
	mirrors(`["` + place + `"]`)
	e2e.MenderFails(t, d, "install", badSmall)
	e2e.Says(t, w, "web 2")
	nothingLeft()

	// A device without any base takes the whole image; mender-app alone installs it.
	d.MustRun(t, "mender-app", "purge", "--force", "--data", "shop")
	require.NoError(t, d.WithoutMender())
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", small)
	e2e.Says(t, e2e.Watch(t, d), "web 2")
	nothingLeft()
	d.MustRun(t, "mender-app", "purge", "--force", "--data", "shop")
}
