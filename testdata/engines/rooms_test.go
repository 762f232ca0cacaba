package engines

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// The tests of the packages that call an engine run on this machine's engine with
// all the others. Here they run on the other engines, inside a device, where the
// engine's files are. They leave out what -skip of this test names, as make test-newest
// does with their long tests.
func TestRooms(t *testing.T) {
	rooms := []string{"submodules/imagestore/docker", "submodules/compose"}
	programs := map[string]string{}
	for _, room := range rooms {
		programs[room] = filepath.Join(t.TempDir(), "test")
		build := exec.Command("go", "test", "-c", "-o", programs[room], "./"+room)
		build.Dir = bed.Repository()
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	for _, e := range bed.ChosenEngines(t) {
		if e.Suite == "" && os.Getenv("MENDER_APP_ENGINES") == "" {
			continue // this machine's
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := bed.StartWith(t, e)
			for _, room := range rooms {
				t.Run(filepath.Base(room), func(t *testing.T) {
					program := d.Share(filepath.Base(room) + ".test")
					data, err := os.ReadFile(programs[room])
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(program, data, 0o755))
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					cmd := d.Command(ctx, "env", "--chdir="+filepath.Join(bed.Repository(), room), program, "-test.timeout=9m", "-test.parallel=4")
					cmd.Env = append(os.Environ(), "HOME=/root", "DOCKER_HOST=")
					out, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s", out)
					t.Logf("%s", out)
				})
			}
		})
	}
}
