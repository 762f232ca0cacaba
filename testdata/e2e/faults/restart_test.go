package faults

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A service without a restart policy that ends with 0 when the machine shuts down runs again
// after the boot. A job that was done does not.
func TestCleanRestart(t *testing.T) {
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := bed.StartWith(t, e)
			e2e.ShortHealthWindow(t, d)
			text := strings.Replace(e2e.Compose("1"), "    image:", "    restart: always\n    image:", 1)
			text = strings.Replace(text, "volumes:\n  counts:", `  worker:
    image: shop/stock:1
    entrypoint: [/bin/shop, -name, worker]
  job:
    image: shop/stock:1
    entrypoint: [/bin/shop, -help]
volumes:
  counts:`, 1)
			text = strings.Replace(text, "  stock:\n", "  stock:\n    restart: always\n", 1)
			file := e2e.Generate(t, d, "shop", "shop-1", "1", text, e2e.Archive(t, e2e.Web(t, "1", "")), e2e.Archive(t, e2e.Stock(t)))
			e2e.Mender(t, d, "install", file)
			e2e.Mender(t, d, "commit")
			states := func() map[string]string {
				t.Helper()
				out := map[string]string{}
				for line := range strings.Lines(d.MustRun(t, "docker", "ps", "--all", "--format", "{{.Names}} {{.State}}")) {
					name, state, _ := strings.Cut(strings.TrimSpace(line), " ")
					out[name] = state
				}
				return out
			}
			started := func(name string) string {
				t.Helper()
				return d.MustRun(t, "docker", "inspect", "--format", "{{.State.StartedAt}}", name)
			}
			up := map[string]string{"shop-web-1": "running", "shop-stock-1": "running", "shop-worker-1": "running", "shop-job-1": "exited"}
			require.Equal(t, up, states())
			job := started("shop-job-1")

			// Until the engine restarts, a service that ended with 0 has done its work.
			d.MustRun(t, "docker", "stop", "--time", "5", "shop-worker-1")
			require.Regexp(t, `shop-worker-1 +done`, d.MustRun(t, "mender-app", "status"))
			d.MustRun(t, "docker", "start", "shop-worker-1")

			for range 2 {
				require.NoError(t, d.StopEngine())
				require.NoError(t, d.StartEngine())
				require.Equal(t, "exited", states()["shop-worker-1"])
				r, err := d.Run("mender-app", "status")
				require.NoError(t, err)
				require.Equal(t, 6, r.Code, r.Output())
				require.Contains(t, r.Stdout, "ended with code 0 before the engine was started")
				web := started("shop-web-1")

				require.Contains(t, d.MustRun(t, "mender-app", "resume"), "shop")
				require.Equal(t, up, states())
				require.Equal(t, job, started("shop-job-1"), "the job ran again")
				require.Equal(t, web, started("shop-web-1"), "a service that ran was restarted")
				require.NotContains(t, d.MustRun(t, "mender-app", "status"), "down")
				web = started("shop-worker-1")
				d.MustRun(t, "mender-app", "resume")
				require.Equal(t, web, started("shop-worker-1"), "a second call starts nothing")
			}
		})
	}
}
