package bed

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests are about the testbed itself, on which the other tests depend.
func TestDeviceRunsAnApplicationAndLeavesNothing(t *testing.T) {
	web, err := Shop{Ref: "shop/web:1", Version: "1", Base: 256}.Image()
	if err != nil {
		t.Fatal(err)
	}
	d := Start(t)
	require.NoError(t, WriteArchive(d.Share("web.tar"), web))
	d.MustRun(t, "docker", "load", "-q", "-i", d.Share("web.tar"))
	require.NoError(t, os.WriteFile(d.Share("compose.yaml"), []byte(`
name: shop
services:
  web:
    image: shop/web:1
    ports: ["8080:8080"]
    mem_limit: 64m
    volumes: ["visits:/var/shop"]
volumes:
  visits:
`), 0o644))
	w, err := d.Watch("http://127.0.0.1:8080/version")
	require.NoError(t, err)
	defer w.Stop()
	start := time.Now()
	d.MustRun(t, "docker", "compose", "-f", d.Share("compose.yaml"), "up", "-d", "--pull", "never", "--wait")
	Eventually(t, 20*time.Second, "the service answers", func() bool { return w.Says() == "web 1" })
	down, times := w.Down(start)
	require.Equal(t, 1, times)
	require.Greater(t, down, 50*time.Millisecond)

	s := d.MustState(t)
	require.Equal(t, "healthy", s.Health["shop-web-1"])
	require.Contains(t, s.Volumes, "shop_visits")
	d.MustProvide(t, map[string]string{}) // no artifact was ever installed
	require.Equal(t, "factory\n", d.MustRun(t, "mender", "--no-syslog", "show-artifact"))

	require.NoError(t, d.Close())
	left, err := filepath.Glob("/sys/fs/cgroup/*/" + d.Cgroup)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A store that somebody can read is found.
func TestOpenToStrangers(t *testing.T) {
	d := StartWithoutEngine(t)
	open := func() []string {
		t.Helper()
		list, err := d.OpenToStrangers()
		require.NoError(t, err)
		return list
	}
	require.Empty(t, open(), "no store")
	d.MustRun(t, "bash", "-ec", "mkdir -p -m 755 /data/mender-app/.mender-app; echo x >/data/mender-app/shop; chmod 700 /data/mender-app/.mender-app")
	require.Equal(t, []string{"/data/mender-app", "/data/mender-app/shop"}, open())
	d.MustRun(t, "chmod", "711", "/data/mender-app")
	require.Equal(t, []string{"/data/mender-app"}, open())
	d.MustRun(t, "chmod", "700", "/data/mender-app")
	require.Empty(t, open())
}
