package cmd

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/semver"
)

// goOfYocto is the Go of OpenEmbedded's newest branch, wrynose, with which
// packaging/yocto builds. Buildroot 2026.05 has 1.26.3.
const goOfYocto = "1.26.5"

// go.mod asks for no newer Go than its dependencies do, nor than distributions for devices
// have.
func TestGoVersionIsThatOfADependency(t *testing.T) {
	_, err := os.ReadFile("../go.mod") // for Go's test cache: what it says decides
	require.NoError(t, err)
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
	require.LessOrEqual(t, semver.Compare("v"+ours, "v"+goOfYocto), 0, "Yocto's Go is %s, and go.mod says %s, for %s: take an older version of that", goOfYocto, ours, by)
}
