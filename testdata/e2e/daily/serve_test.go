package daily

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// The units of mender-app-serve and mender-app-metrics, under a real systemd with all
// their protection, tell of the applications as the commands do, during an update too,
// and nothing is resident.
func TestServe(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	d.StartSystemd(t)
	d.MustRun(t, "systemd-sysusers", "/usr/lib/sysusers.d/mender-app.conf")
	d.MustRun(t, "systemctl", "start", "mender-app-serve.socket")
	require.Equal(t, "mender-app 660", strings.TrimSpace(d.MustRun(t, "stat", "--format=%G %a", "/run/mender-app.sock")))
	ask := func(path string) string {
		t.Helper()
		return d.MustRun(t, "curl", "-sS", "--fail-with-body", "--max-time", "20", "--unix-socket", "/run/mender-app.sock", "http://localhost"+path)
	}
	require.JSONEq(t, d.MustRun(t, "mender-app", "status", "--json"), ask("/v1/apps"))
	require.Contains(t, ask("/v1/apps/shop/logs?service=web"), `"line":"web 1 starts`)

	d.MustRun(t, "bash", "-c", "curl -sSN --unix-socket /run/mender-app.sock http://localhost/v1/events >/tmp/events 2>&1 & echo $! >/tmp/reader; for i in $(seq 50); do test -s /tmp/events && exit; sleep 0.1; done; exit 1")
	e2e.Mender(t, d, "install", e2e.Release(t, d, "2", ""))
	e2e.Says(t, w, "web 2")
	var apps []status
	require.NoError(t, json.Unmarshal([]byte(ask("/v1/apps")), &apps))
	require.Equal(t, "waits for its commit", apps[0].State)
	require.Equal(t, "healthy", apps[0].Health)
	require.Contains(t, ask("/v1/queue"), `"phase":"installed"`)
	e2e.Mender(t, d, "commit")
	d.MustRun(t, "bash", "-c", "sleep 1; kill $(cat /tmp/reader)")
	events := d.MustRun(t, "cat", "/tmp/events")
	for _, phase := range []string{"downloading", "installing", "installed", "committed"} {
		require.Contains(t, events, `"phase":"`+phase+`"`)
	}
	require.Contains(t, events, `"status":"installed"`)

	d.MustRun(t, "mkdir", "-p", "/var/lib/prometheus/node-exporter")
	d.MustRun(t, "systemctl", "start", "mender-app-metrics.service")
	require.Contains(t, d.MustRun(t, "cat", "/var/lib/prometheus/node-exporter/mender-app.prom"), `mender_app_application_state{application="shop",state="installed"} 1`)
	require.Contains(t, ask("/metrics"), `mender_app_application_healthy{application="shop"} 1`)

	d.MustRun(t, "bash", "-c", "for i in $(seq 60); do systemctl is-active -q mender-app-serve.service || exit 0; sleep 1; done; exit 1")
	require.Contains(t, ask("/healthz"), `"ok":true`, "the next request starts it again")
	actions(t, d)
	e2e.Says(t, w, "web 1")
}

// actions goes back to the first release over the socket for actions. The other socket
// refuses that.
func actions(t *testing.T, d *bed.Device) {
	t.Helper()
	const post = `curl -sS -w ' %{http_code}' --max-time 20 -H 'Content-Type: application/json' --unix-socket `
	out := d.MustRun(t, "sh", "-c", post+`/run/mender-app.sock -d '{}' http://localhost/v1/apps/shop/rollback`)
	require.Contains(t, out, "--allow-actions")
	require.Contains(t, out, " 403")
	d.MustRun(t, "systemctl", "start", "mender-app-actions.socket")
	stranger, err := d.Run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", post+`/run/mender-app-actions.sock -d '{}' http://localhost/v1/hold`)
	require.NoError(t, err)
	require.Equal(t, 7, stranger.Code, "a stranger cannot even connect: %v", stranger)
	out = d.MustRun(t, "sh", "-c", post+`/run/mender-app-actions.sock -d '{"release":"nonsense"}' http://localhost/v1/apps/shop/rollback`)
	require.Contains(t, out, " 404")
	out = d.MustRun(t, "sh", "-c", post+`/run/mender-app-actions.sock -d '{}' http://localhost/v1/apps/shop/rollback`)
	require.Regexp(t, " 20[02]$", out)
	done := d.MustRun(t, "sh", "-c", `for i in $(seq 60); do
		out=$(curl -sS --unix-socket /run/mender-app-actions.sock http://localhost/v1/actions/2)
		case $out in *exit_code*) echo "$out"; exit ;; esac; sleep 1; done; exit 1`)
	require.Contains(t, done, `"exit_code":0`)
	var record struct {
		Status string
		Asked  struct{ How, User string }
	}
	require.NoError(t, json.Unmarshal([]byte(d.MustRun(t, "mender-app", "history", "shop", "3", "--json")), &record))
	require.Equal(t, "restored by hand root", record.Status+" "+record.Asked.How+" "+record.Asked.User)
	const id = "MESSAGE_ID=4c8a2f7e91d54b03a6e8d2f1c5b7904a" // packaging/systemd/mender-app.catalog
	d.MustRun(t, "journalctl", "--update-catalog")
	require.Contains(t, d.MustRun(t, "journalctl", "-x", id, "MENDER_APP_APPLICATION=shop", "MENDER_APP_STATUS=restored"), "has ended well")
	steps := d.MustRun(t, "journalctl", "-o", "export", "MENDER_APP_APPLICATION=shop", "MENDER_APP_STEP=installing")
	require.Contains(t, steps, "MENDER_APP_RELEASE=1-shop-1\n")
}
