package daily

import (
	"fmt"
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

// A release that app-gen fleet planned, made in two shards and published, over a web server
// and with mender-app alone: with each of three older releases the device fetches the delta
// of that release, and without one the whole image.
func TestFleet(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	releases, store := d.Share("releases"), d.Share("fleet")
	require.NoError(t, os.MkdirAll(releases, 0o755))
	for _, n := range []string{"1", "2", "3", "4"} {
		file := e2e.Release(t, d, n, "")
		require.NoError(t, os.Link(file, filepath.Join(releases, "shop-"+n+".mender")))
	}
	programs, err := bed.Programs()
	require.NoError(t, err)
	dir := t.TempDir()
	plan, inventory, small := filepath.Join(dir, "plan.json"), filepath.Join(dir, "devices.csv"), filepath.Join(d.Share("small"), "shop-4.mender")
	require.NoError(t, os.MkdirAll(filepath.Dir(small), 0o755))
	require.NoError(t, os.WriteFile(inventory, []byte("id,version\na,shop-1\nb,shop-2\nc,shop-2\nd,shop-3\ne,shop-0\n"), 0o600))
	fleet := func(args ...string) string {
		t.Helper()
		text, err := exec.Command(filepath.Join(programs, "app-gen"), append([]string{"fleet"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", text)
		return string(text)
	}
	require.Contains(t, fleet("plan", "--inventory", inventory, "--releases", releases, "-n", "shop-4", "-o", plan), "4 deltas: about") // one of the image that did not change
	for shard := 1; shard <= 2; shard++ {
		fleet("run", plan, store, "--releases", releases, "--shard", fmt.Sprintf("%d/2", shard))
	}
	fleet("publish", plan, store, "--source", "http://127.0.0.1:8098/", "-o", small)
	require.Less(t, e2e.FileSize(t, small), int64(40<<10))

	server := d.Command(t.Context(), "python3", "-u", "-m", "http.server", "8098", "--bind", "127.0.0.1", "--directory", store)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer log.Close()
	server.Stderr = log
	require.NoError(t, server.Start())
	defer server.Process.Kill()
	bed.Eventually(t, time.Minute, "the web server answers", func() bool {
		r, err := d.Run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8098")
		return err == nil && r.Code == 0
	})

	fetched := map[string]string{} // by what a device had: the files that it asked for
	for _, had := range []string{"3", "1", "2", ""} {
		if had != "" {
			d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", filepath.Join(releases, "shop-"+had+".mender"))
		}
		before, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", small)
		e2e.Says(t, e2e.Watch(t, d), "web 4")
		after, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		var files []string
		var bytes int64
		for _, line := range strings.Split(string(after[len(before):]), "\n") {
			if _, rest, ok := strings.Cut(line, `"GET /`); ok {
				name, _, _ := strings.Cut(rest, " ")
				files = append(files, name)
				bytes += e2e.FileSize(t, filepath.Join(store, name))
			}
		}
		fetched[had] = strings.Join(files, " ")
		t.Logf("a device with %q fetched %d bytes", had, bytes)
		if had != "" {
			require.Len(t, files, 2, "a delta of each image; that of the one that did not change says so alone")
			require.Less(t, bytes, int64(100<<10))
		} else {
			require.Greater(t, bytes, int64(1<<20))
		}
		d.MustRun(t, "mender-app", "purge", "--force", "--data", "shop")
	}
	require.NotEqual(t, fetched["1"], fetched["2"])
	require.NotEqual(t, fetched["2"], fetched["3"])
	require.NotEqual(t, fetched["1"], fetched["3"])
}
