package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/output/outputtest"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// Every option and argument that names an output treats a device, a pipe and a link
// there as package output says. One that is not in the table fails the test.
func TestOutputs(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"till=till"}, Type: "binary"}
	require.NoError(t, a.Write(d.Dir+"/v1.mender"))
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)
	begins := func(magic string) func(testing.TB, []byte) {
		return func(t testing.TB, content []byte) {
			t.Helper()
			require.Greater(t, len(content), 100)
			require.True(t, bytes.HasPrefix(content, []byte(magic)))
		}
	}
	outputtest.Options(t, (&program{}).root(), map[string]outputtest.Output{
		"mender-app backup FILE":      {Args: []string{"backup", "--without-data"}, Whole: begins("\x28\xb5\x2f\xfd")},
		"mender-app report --output":  {Args: []string{"report"}, Whole: begins("\x1f\x8b")},
		"mender-app metrics --output": {Args: []string{"metrics"}, Whole: begins("# HELP ")},
	}, outputtest.Command{
		Terminal: func(t testing.TB) (screen, terminal *os.File) { return devicetest.OpenTerminal(t, 80) },
	}, func(args ...string) *exec.Cmd { return d.Command("mender-app", args...) })
}
