package daily

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// On a device that works doctor reports that, and for each thing that was broken it
// says what to do. It changes nothing.
func TestDoctor(t *testing.T) {
	d := e2e.Device(t)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	before := e2e.Unchanging(d.MustState(t))
	type finding struct{ Status, Check, Found, Do string }
	doctor := func(code int) map[string]finding {
		t.Helper()
		r, err := d.Run("mender-app", "doctor", "--json")
		require.NoError(t, err)
		require.Equal(t, code, r.Code, "%s", r.Output())
		var list []finding
		require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list), "%s", r.Stdout)
		found := map[string]finding{}
		for _, f := range list {
			if f.Status != "ok" {
				require.NotEmpty(t, f.Do, "%v", f)
			}
			found[f.Check] = f
		}
		return found
	}
	found := doctor(0)
	for _, check := range []string{"mender-app", "update module", "sub-module docker-compose", "engine of docker-compose", "store", "free space", "durable writes", "clock"} {
		require.Equal(t, "ok", found[check].Status, "%s: %v", check, found[check])
	}
	require.Regexp(t, `^docker \d+\.`, found["engine of docker-compose"].Found)
	require.Equal(t, "warn", found["signature keys"].Status)
	require.Contains(t, found, "sandbox: landlock")
	require.Contains(t, found, "sandbox: seccomp")
	require.NotContains(t, found, "sandbox", "nothing leaks")

	d.MustRun(t, "chmod", "777", "/data/mender-app")
	require.Equal(t, "fail", doctor(1)["store"].Status)
	d.MustRun(t, "bash", "-c", doctor(1)["store"].Do)
	doctor(0)

	require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
	require.NoError(t, d.StopEngine())
	engine := doctor(1)["engine of docker-compose"]
	require.Equal(t, "fail", engine.Status)
	require.Contains(t, engine.Found, "docker.sock")
}
