package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata/retry runs a command until it succeeds or the waits are used up, and
// ends with the command's own status. A script that sources it can retry a function.
func TestRetry(t *testing.T) {
	const sourced = `set -euo pipefail; . ../testdata/retry; try() { "$@"; }; `
	for name, c := range map[string]struct {
		argv     []string
		fails    int // how often the command fails before it succeeds
		runs     int
		succeeds bool
	}{
		"at once":             {argv: []string{"../testdata/retry"}, runs: 1, succeeds: true},
		"the third time":      {argv: []string{"../testdata/retry"}, fails: 2, runs: 3, succeeds: true},
		"the last time":       {argv: []string{"../testdata/retry"}, fails: 3, runs: 4, succeeds: true},
		"never":               {argv: []string{"../testdata/retry"}, fails: 99, runs: 4},
		"a function":          {argv: []string{"bash", "-c", sourced + `retry try "$@"`, "-"}, fails: 2, runs: 3, succeeds: true},
		"a function's status": {argv: []string{"bash", "-c", sourced + `retry try "$@"`, "-"}, fails: 99, runs: 4},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			command := `echo >>"$0"; [ "$(wc -l <"$0")" -gt "$1" ] || exit 7`
			argv := append(c.argv, "bash", "-c", command, log, strconv.Itoa(c.fails))
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "RETRY_WAITS=0 0 0")
			said, err := cmd.CombinedOutput()
			if c.succeeds {
				require.NoError(t, err, "%s", said)
			} else {
				require.Error(t, err)
				require.Equal(t, 7, cmd.ProcessState.ExitCode(), "%s", said)
			}
			lines, err := os.ReadFile(log)
			require.NoError(t, err)
			require.Equal(t, c.runs, strings.Count(string(lines), "\n"))
			require.Equal(t, c.runs-1, strings.Count(string(said), "again in 0 s"))
		})
	}
}
