package daily

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// Two applications share an image. Each is updated and undone, and both are removed: then
// the engine has nothing of either.
func TestApplicationsShareAnImage(t *testing.T) {
	d := e2e.Device(t)
	release := func(app, version, more string) string {
		return e2e.Generate(t, d, app, app+"-"+version, version, "services:\n  web:\n    image: shop/stock:1\n    stop_grace_period: 1s\n"+more,
			e2e.Archive(t, e2e.Stock(t)))
	}
	for _, app := range []string{"shop", "kiosk"} {
		e2e.Mender(t, d, "install", release(app, "1", ""))
		e2e.Mender(t, d, "commit")
	}
	e2e.Mender(t, d, "install", release("shop", "2", "    environment: {A: b}\n"))
	e2e.Mender(t, d, "rollback")
	e2e.Mender(t, d, "install", release("shop", "3", "    environment: {A: c}\n"))
	e2e.Mender(t, d, "commit")
	d.MustRun(t, "mender-app", "purge", "--force", "shop")
	require.Contains(t, d.MustRun(t, "mender-app", "status"), "kiosk")
	d.MustRun(t, "mender-app", "purge", "--force", "kiosk")
	require.Empty(t, d.MustRun(t, "docker", "images", "-aq"))
	require.Empty(t, d.MustRun(t, "docker", "ps", "-aq"))
	require.Empty(t, d.MustRun(t, "docker", "network", "ls", "-q", "--filter", "type=custom"))
}
