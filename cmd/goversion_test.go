package cmd

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/semver"
)

// go.mod asks for no newer Go than its dependencies do: distributions for devices, such as
// Yocto's, have older ones than ours.
func TestGoVersionIsThatOfADependency(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-json=Path,Version,GoVersion,Main", "all").Output()
	require.NoError(t, err)
	var ours, most, by string
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var m struct {
			Path, Version, GoVersion string
			Main                     bool
		}
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		switch {
		case m.Main:
			ours = m.GoVersion
		case m.GoVersion != "" && semver.Compare("v"+m.GoVersion, "v"+most) > 0:
			most, by = m.GoVersion, m.Path+" "+m.Version
		}
	}
	t.Logf("go %s, for %s", most, by)
	require.Zero(t, semver.Compare("v"+ours, "v"+most), "go.mod says go %s, and %s is what the dependencies need, for %s: lower it", ours, most, by)
}
