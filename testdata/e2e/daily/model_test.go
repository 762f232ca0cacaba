package daily

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// Through the Mender client: a network that a release changes is as the release says, and
// as before after a rollback; a volume stays and is warned of; a job that did not change
// runs once; `mender-app check` says so before.
func TestReleaseIsWhatRuns(t *testing.T) {
	d := e2e.Device(t)
	image := e2e.Archive(t, e2e.Stock(t))
	ship := func(version, network, size string) string {
		return e2e.Generate(t, d, "shop", "shop-"+version, version, fmt.Sprintf(`services:
  stock:
    image: shop/stock:1
    networks: [back]
    volumes: ["data:/var/shop"]
    stop_grace_period: 1s
    depends_on: {job: {condition: service_completed_successfully}}
  other:
    image: shop/stock:1
    network_mode: none
    stop_grace_period: 1s
  job:
    image: shop/stock:1
    entrypoint: [/bin/shop, -h]
    network_mode: none
networks: {back: %s}
volumes: {data: {driver_opts: {type: tmpfs, device: tmpfs, o: "size=%s"}}}
`, network, size), image)
	}
	ran := func(service string) string {
		t.Helper()
		return d.MustRun(t, "docker", "inspect", "--format", "{{.Id}} {{.State.StartedAt}}", "shop-"+service+"-1")
	}
	internal := func() string {
		t.Helper()
		return strings.TrimSpace(d.MustRun(t, "docker", "network", "inspect", "--format", "{{.Internal}}", "shop_back"))
	}
	e2e.Mender(t, d, "install", ship("1", "{}", "1m"))
	e2e.Mender(t, d, "commit")
	job, other := ran("job"), ran("other")
	require.Equal(t, "false", internal())

	two := ship("2", "{internal: true}", "9m")
	r, err := d.Run("mender-app", "check", two)
	require.NoError(t, err)
	for _, row := range []string{`restarts +stock`, `keeps +job, other`, `networks +back: made anew`, `volumes +data: stay as they are`, `healthy +within 2m0s`} {
		require.Regexp(t, `(?m)^`+row, r.Output())
	}
	installed, err := d.Mender("install", two)
	require.NoError(t, err)
	require.Zero(t, installed.Code, installed.Output())
	require.Contains(t, installed.Output(), "warning: the volume shop_data stays as it is")
	require.Equal(t, "true", internal())
	require.Equal(t, []string{job, other}, []string{ran("job"), ran("other")})

	e2e.Mender(t, d, "rollback")
	require.Equal(t, "false", internal())
	require.Equal(t, []string{job, other}, []string{ran("job"), ran("other")})
	d.MustProvide(t, e2e.Provides("1"))

	// Stopped and started.
	d.MustRun(t, "mender-app", "stop", "shop")
	d.MustRun(t, "mender-app", "start", "shop")
	require.Equal(t, job, ran("job"))
	require.NotEqual(t, other, ran("other"))
	d.MustRun(t, "mender-app", "health", "shop")
}
