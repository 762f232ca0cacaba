package engines

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// The tests of the packages that call an engine run on this machine's engine with
// all the others. Here they run on the other engines, inside a device, where the
// engine's files are. -run chooses among them: -run TestRooms/28/compose/TestRepair.
func TestRooms(t *testing.T) {
	programs := map[string]string{}
	for _, room := range []string{"submodules/imagestore/docker", "submodules/compose"} {
		programs[room] = testProgram(t, room)
	}
	var options []string
	if parts := strings.SplitN(flag.Lookup("test.run").Value.String(), "/", 4); len(parts) == 4 {
		options = []string{"-test.run=" + parts[3]}
	}
	for _, e := range bed.ChosenEngines(t) {
		if e.Suite == "" && os.Getenv("MENDER_APP_ENGINES") == "" {
			continue // this machine's
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := bed.StartWith(t, e)
			for room, program := range programs {
				t.Run(filepath.Base(room), func(t *testing.T) { t.Log(inDevice(t, d, room, program, options...)) })
			}
		})
	}
}

// testProgram builds the tests of a package.
func testProgram(t *testing.T, room string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "test")
	build := exec.Command("go", "test", "-c", "-o", program, "./"+room)
	build.Dir = bed.Repository()
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// inDevice runs the tests of a package in a device, where the engine's files are, and returns
// what they said.
func inDevice(t *testing.T, d *bed.Device, room, program string, options ...string) string {
	t.Helper()
	data, err := os.ReadFile(program)
	require.NoError(t, err)
	inside := d.Share(filepath.Base(room) + ".test")
	require.NoError(t, os.WriteFile(inside, data, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	args := append([]string{"--chdir=" + filepath.Join(bed.Repository(), room), inside, "-test.timeout=19m", "-test.parallel=4"}, options...)
	cmd := d.Command(ctx, "env", args...)
	cmd.Env = append(os.Environ(), "HOME=/root", "DOCKER_HOST=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
