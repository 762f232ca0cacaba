package daily

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The shop mounts a volume of the kiosk, by its name and by its path, or takes its project
// while it is stopped: that is refused, `mender-app check` says so before anything is loaded,
// and the kiosk goes on. With the pair in the operator's configuration, it is installed.
func TestOtherApplications(t *testing.T) {
	d := e2e.Device(t)
	release := func(app, artifact, compose string) string {
		return e2e.Generate(t, d, app, artifact, "1", compose, e2e.Archive(t, e2e.Stock(t)))
	}
	const service = "services:\n  stock:\n    image: shop/stock:1\n    stop_grace_period: 1s\n    volumes: "
	e2e.Mender(t, d, "install", release("kiosk", "kiosk-1", service+"['data:/var/shop']\nvolumes: {data: {}}\n"))
	e2e.Mender(t, d, "commit")
	mountpoint := d.MustRun(t, "docker", "volume", "inspect", "-f", "{{.Mountpoint}}", "kiosk_data")
	shops := map[string]string{
		"external": release("shop", "shop-external", service+"['data:/theirs']\nvolumes: {data: {external: true, name: kiosk_data}}\n"),
		"named":    release("shop", "shop-named", service+"['data:/theirs']\nvolumes: {data: {name: kiosk_data}}\n"),
		"path":     release("shop", "shop-path", service+"['"+strings.TrimSpace(mountpoint)+":/theirs:ro']\n"),
		"store":    release("shop", "shop-store", service+"['/data/mender-app/kiosk:/theirs:ro']\n"),
		"project":  release("shop", "shop-project", "name: kiosk\n"+service+"['data:/theirs']\nvolumes: {data: {}}\n"),
	}
	const unless = "refused unless ALLOW_OTHERS in mender-app-docker-compose.conf has shop:kiosk"
	refused := func(project string) {
		t.Helper()
		for name, file := range shops {
			says := unless
			if name == "project" {
				says = project
			}
			before := e2e.Unchanging(d.MustState(t))
			r, err := d.Run("mender-app", "check", file)
			require.NoError(t, err)
			require.Contains(t, r.Output(), says, name)
			require.NotZero(t, r.Code, name)
			require.Equal(t, before, e2e.Unchanging(d.MustState(t)), name)
			r, err = d.Run("mender", "--no-syslog", "install", file)
			require.NoError(t, err)
			require.NotZero(t, r.Code, name)
			require.Contains(t, r.Output(), says, name)
		}
	}
	refused("is in use by container kiosk-stock-1")
	// Without containers too.
	d.MustRun(t, "mender-app", "stop", "kiosk")
	d.MustRun(t, "docker", "rm", "-f", "kiosk-stock-1")
	refused(unless)
	d.MustRun(t, "mender-app", "start", "kiosk")
	d.MustRun(t, "mender-app", "health", "kiosk")

	conf := d.Path("/etc/mender/mender-app-docker-compose.conf")
	settings, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, append(settings, "\nALLOW_OTHERS=\"shop:kiosk\"\n"...), 0o644))
	e2e.Mender(t, d, "install", shops["external"])
	e2e.Mender(t, d, "commit")
	require.Contains(t, d.MustRun(t, "docker", "inspect", "-f", "{{range .Mounts}}{{.Name}}{{end}}", "shop-stock-1"), "kiosk_data")
}
