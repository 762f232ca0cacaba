package daily

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// status is what mender-app status says of the shop.
type status struct {
	State, Health, Release, Committed, Problem string
	Services                                   []struct{ Service, Instance, Health, Since, Failure, Said string }
	Last                                       struct {
		Artifact string `json:"artifact_name"`
		Status   string
		Error    string
	}
}

// statusOf runs mender-app status and expects an exit code.
func statusOf(t *testing.T, d *bed.Device, code int) status {
	t.Helper()
	r, err := d.Run("mender-app", "status", "--json", "shop")
	require.NoError(t, err)
	require.Equal(t, code, r.Code, r.Output())
	var list []status
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list), r.Stdout)
	require.Len(t, list, 1)
	return list[0]
}

// mender-app status says what runs and how it is, through an update, a failure, a
// rollback, a service that ends and an engine that is gone.
func TestStatus(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	st := statusOf(t, d, 0)
	require.Equal(t, "installed", st.State)
	require.Equal(t, "healthy", st.Health)
	require.Len(t, st.Services, 2)
	for i, name := range []string{"stock", "web"} {
		require.Equal(t, name, st.Services[i].Service)
		require.Equal(t, "healthy", st.Services[i].Health)
		require.NotEmpty(t, st.Services[i].Since)
	}
	require.Equal(t, "installed", st.Last.Status)
	stock := st.Services[0]

	e2e.Mender(t, d, "install", e2e.Release(t, d, "2", ""))
	e2e.Says(t, w, "web 2")
	st = statusOf(t, d, 0)
	require.Equal(t, "waits for its commit", st.State)
	require.Equal(t, "2-shop-2", st.Release, "what runs")
	require.Equal(t, "1-shop-1", st.Committed)
	require.Equal(t, stock, st.Services[0], "it was not touched")
	e2e.Mender(t, d, "commit")

	r, err := d.Run("mender", "--no-syslog", "install", e2e.Release(t, d, "3", "crash"))
	require.NoError(t, err)
	require.NotZero(t, r.Code)
	st = statusOf(t, d, 0)
	require.Equal(t, "installed", st.State)
	require.Equal(t, "2-shop-2", st.Release)
	require.Equal(t, "shop-3", st.Last.Artifact)
	require.Equal(t, "rolled-back", st.Last.Status)
	require.Contains(t, st.Last.Error, "the till is on fire")

	d.MustRun(t, "docker", "stop", st.Services[1].Instance)
	st = statusOf(t, d, 6)
	require.Equal(t, "installed", st.State)
	require.Equal(t, "down", st.Health)
	require.Equal(t, "down", st.Services[1].Health)
	require.Contains(t, st.Services[1].Failure, "exited with code")
	require.NotEmpty(t, st.Services[1].Said)

	d.MustRun(t, "mender-app", "stop", "shop")
	st = statusOf(t, d, 0)
	require.Equal(t, "stopped", st.State)
	d.MustRun(t, "mender-app", "start", "shop")
	require.Equal(t, "installed", statusOf(t, d, 0).State)

	require.NoError(t, d.StopEngine())
	st = statusOf(t, d, 3)
	require.Equal(t, "2-shop-2", st.Release)
	require.Equal(t, "unknown", st.Health)
	require.Contains(t, st.Problem, "docker.sock")
}

// mender-app logs shows what the services wrote through the engine, and follows them
// through an update.
func TestLogs(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	said := d.MustRun(t, "mender-app", "logs", "shop")
	require.Regexp(t, `(?m)^shop-web-1 \| .+$`, said)
	require.Regexp(t, `(?m)^shop-stock-1 \| .+$`, said)
	require.NotContains(t, d.MustRun(t, "mender-app", "logs", "shop", "web"), "stock-1 |")
	require.Empty(t, d.MustRun(t, "mender-app", "logs", "shop", "--tail", "0"))

	d.MustRun(t, "bash", "-c", "mender-app logs shop web --tail 0 -f --json >/tmp/followed 2>&1 & echo $! >/tmp/follower")
	e2e.Mender(t, d, "install", e2e.Release(t, d, "2", ""))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	d.MustRun(t, "bash", "-ec", "kill -INT $(cat /tmp/follower); while kill -0 $(cat /tmp/follower) 2>/dev/null; do sleep 0.1; done")
	followed := d.MustRun(t, "cat", "/tmp/followed")
	require.NotEmpty(t, followed)
	for line := range strings.Lines(followed) {
		var l struct{ Service, Line string }
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		require.Equal(t, "web", l.Service)
	}

	r, err := d.Run("mender-app", "logs", "shop", "none")
	require.NoError(t, err)
	require.Equal(t, 4, r.Code, r.Output())
	require.NoError(t, d.StopEngine())
	r, err = d.Run("mender-app", "logs", "shop")
	require.NoError(t, err)
	require.Equal(t, 3, r.Code, r.Output())
}

// A report of a real device has what it should have, and none of its secrets, also
// where an error had them in its text.
func TestReport(t *testing.T) {
	d := e2e.Device(t)
	key := e2e.NewKey(t)
	e2e.GiveKey(t, d, key)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "conf"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker-compose.yml"), []byte(e2e.SecretShop("1")), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "conf", "pin"), []byte("hunter-one"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("SALT=in-the-env\n"), 0o600))
	e2e.Mender(t, d, "install", e2e.Generate(t, d, "shop", "shop-1", "1", "", e2e.Archive(t, e2e.Web(t, "1", "")), e2e.Archive(t, e2e.Stock(t)),
		"--manifests-dir="+dir, "--encrypt-secrets-to="+key.Recipient().String()))
	e2e.Mender(t, d, "commit")
	known := []string{"hunter-one", "in-the-env", key.String(), "dG9rZW4tOQ"}
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"TenantToken":"dG9rZW4tOQ","ServerURL":"https://hosted.example"}`), 0o600))
	d.MustRun(t, "sed", "-i", `s|"status":|"error":"all of it: `+strings.Join(known, " ")+`","status":|`, "/data/mender-app/.mender-app/history/shop.jsonl")
	require.Contains(t, d.MustRun(t, "mender-app", "history", "shop"), "in-the-env", "who is on the device sees all")

	d.MustRun(t, "mender-app", "report", "-o", "/tmp/report.tar.gz")
	require.Equal(t, "600", strings.TrimSpace(d.MustRun(t, "stat", "--format=%a", "/tmp/report.tar.gz")))
	names := d.MustRun(t, "tar", "-tzf", "/tmp/report.tar.gz")
	for _, name := range []string{"versions.txt", "doctor.json", "status.json", "history/shop.json", "releases/shop.json", "journal.txt", "config/mender-app.conf", "config/mender.conf"} {
		require.Contains(t, names, "/"+name+"\n")
	}
	text := d.MustRun(t, "tar", "-xzOf", "/tmp/report.tar.gz")
	for _, secret := range known {
		require.NotContains(t, text, secret)
	}
	require.Contains(t, text, "all of it: [removed] [removed] [removed] [removed]")
	require.Contains(t, text, "shop-web-1")
	require.Contains(t, text, "$ docker version")

	// Without an engine there is a report too.
	require.NoError(t, d.StopEngine())
	d.MustRun(t, "mender-app", "report", "-o", "/tmp/report.tar.gz")
	require.Contains(t, d.MustRun(t, "tar", "-xzOf", "/tmp/report.tar.gz"), "docker.sock")
}
