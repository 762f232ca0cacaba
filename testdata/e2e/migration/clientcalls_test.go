package migration

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The states in which the clients call the module, in short.
var shortStates = map[string]string{
	"ProvidePayloadFileSizes": "PPS", "Download": "D", "DownloadWithFileSizes": "D", "ArtifactInstall": "I", "NeedsArtifactReboot": "NR",
	"SupportsRollback": "SR", "ArtifactCommit": "C", "ArtifactRollback": "RB", "ArtifactFailure": "F", "Cleanup": "Cl",
}

// tracing stands before the update module, and notes each call.
const tracing = `#!/bin/sh
echo "$1" >>/run/calls
exec /usr/libexec/app-traced "$@"
`

// Both clients call the module in the order that the model of modules/deploy and
// docs/MENDER.md assume.
func TestCallsOfTheClients(t *testing.T) {
	t.Parallel()
	for i, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			require.NoError(t, os.WriteFile(d.Share("tracing"), []byte(tracing), 0o755))
			d.MustRun(t, "sh", "-ec", "mkdir -p /usr/libexec; mv /usr/share/mender/modules/v3/app /usr/libexec/app-traced; install -m755 "+d.Share("tracing")+" /usr/share/mender/modules/v3/app")
			one, two, bad := e2e.Release(t, d, "1", ""), e2e.Release(t, d, "2", ""), e2e.Release(t, d, "3", "unhealthy")
			left := e2e.Release(t, d, "4", "crash", "--policy", e2e.LeftToPerson(t))
			for _, step := range []struct {
				what  string
				args  []string
				fails bool
				calls [2]string // of the client in Go, and of that in C++
			}{
				{"install", []string{"install", one}, false, [2]string{"D SR I NR", "PPS D I NR SR"}},
				{"commit", []string{"commit"}, false, [2]string{"C Cl", "C Cl"}},
				{"update", []string{"install", two}, false, [2]string{"D SR I NR", "PPS D I NR SR"}},
				{"roll back", []string{"rollback"}, false, [2]string{"SR RB Cl", "SR RB F Cl"}},
				{"a release that fails", []string{"install", bad}, true, [2]string{"D SR I SR RB F Cl", "PPS D I SR RB F Cl"}},
				{"an artifact that is cut off", []string{"install", cutOff(t, d.Share("cut.mender"), two)}, true, [2]string{"D Cl", "PPS D Cl"}},
				{"a release that fails and stays", []string{"install", left}, true, [2]string{"D SR I SR F Cl", "PPS D I SR F Cl"}},
				{"final", []string{"install", two}, false, [2]string{"D SR I NR C Cl", "PPS D I NR SR C Cl"}},
			} {
				if step.what == "final" {
					d.MustRun(t, "sh", "-c", "echo 'commit_on_install = true' >>/etc/mender/mender-app.conf")
				}
				d.MustRun(t, "rm", "-f", "/run/calls")
				r, err := d.Mender(step.args...)
				require.NoError(t, err)
				require.Equal(t, step.fails, r.Code != 0, "%s\n%s", step.what, r.Output())
				var calls []string
				for _, state := range strings.Fields(d.MustRun(t, "cat", "/run/calls")) {
					require.Contains(t, shortStates, state)
					calls = append(calls, shortStates[state])
				}
				require.Equal(t, step.calls[i], strings.Join(calls, " "), step.what)
			}
			d.MustProvide(t, e2e.Provides("2"))
		})
	}
}

// cutOff writes the first nine tenths of a file.
func cutOff(t *testing.T, path, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)*9/10], 0o644))
	return path
}
