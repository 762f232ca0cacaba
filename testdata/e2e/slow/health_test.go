package slow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The first health check of the image comes after the time that a release usually has:
// without HEALTH_DEADLINE it is waited for.
func TestLateHealthCheckIsWaitedFor(t *testing.T) {
	d := e2e.DeviceAsShipped(t)
	image := e2e.Stock(t)
	image.Health = e2e.Web(t, "1", "").Health
	image.Health.Interval = 125 * time.Second
	file := e2e.Generate(t, d, "shop", "shop-1", "1", "services:\n  stock:\n    image: shop/stock:1\n    network_mode: none\n    stop_grace_period: 1s\n", e2e.Archive(t, image))
	begun := time.Now()
	e2e.Mender(t, d, "install", file)
	require.Greater(t, time.Since(begun), 2*time.Minute)
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, e2e.Provides("1"))
}
