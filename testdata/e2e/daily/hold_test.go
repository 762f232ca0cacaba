package daily

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// Updates wait while something else works on the machine, and while a service says
// through a directory that it mounts that it must not be updated now. The Mender client
// believes what is true, and afterwards the same artifact is installed.
func TestHolds(t *testing.T) {
	d := e2e.Device(t)
	text := func(version string) string {
		return `services:
  stock:
    image: shop/stock:1
    environment: [VERSION=` + version + `]
    ports: ["8081:8080"]
    volumes: ["/run/mender-app/shop:/var/shop"]
    stop_grace_period: 1s
`
	}
	one := e2e.Generate(t, d, "shop", "shop-1", "1", text("1"), e2e.Archive(t, e2e.Stock(t)))
	two := e2e.Generate(t, d, "shop", "shop-2", "2", text("2"), e2e.Archive(t, e2e.Stock(t)))
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	before, believed := e2e.Unchanging(d.MustState(t)), e2e.MustProvides(t, d)
	refused := func(says string) {
		t.Helper()
		require.Contains(t, e2e.MenderFails(t, d, "install", two), says)
		require.Equal(t, before, e2e.Unchanging(d.MustState(t)), "nothing was loaded or touched")
		require.Equal(t, believed, e2e.MustProvides(t, d))
	}

	d.MustRun(t, "mender-app", "hold", "--reason", "new kernel", "--for", "1h")
	refused("updates are held: new kernel")
	r, err := d.Run("mender-app", "stop", "shop")
	require.NoError(t, err)
	require.Equal(t, 75, r.Code, r.Output())
	d.MustRun(t, "mender-app", "unhold", "--reason", "new kernel")

	e2e.Visit(t, d, "1") // writes the number of visits to the file
	lock := d.Path("/run/mender-app/shop/visits")
	require.NoError(t, os.Rename(lock, d.Path("/run/mender-app/shop/updates.lock")))
	refused("updates of shop are held by the application (/run/mender-app/shop/updates.lock): 1: try again later")
	require.NoError(t, os.Remove(d.Path("/run/mender-app/shop/updates.lock")))

	e2e.Mender(t, d, "install", two)
	r, err = d.Run("mender-app", "hold")
	require.NoError(t, err)
	require.Equal(t, 75, r.Code, "an update is open: %s", r.Output())
	e2e.Mender(t, d, "commit")
}
