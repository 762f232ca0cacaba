package engines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// edges are the tests, by package, of what engines lose, what people do, and what the
// device then says.
var edges = map[string][]string{
	"submodules/compose": {
		"TestPutsRightWhatIsLost",                                                                   // networks, containers, volumes, tags, states of containers
		"TestNetworksChange", "TestNetworkCannotBeMade", "TestNetworkOfOthers", "TestVolumeChanges", // what runs is what the release says
		"TestJobsRunOnce", "TestJobThatFailedRunsAgain", // services that run once
		"TestPurgeFindsVolumesWithoutAName", "TestVolumesWithoutANameComeBack", // data that only a container names
		"TestDeadlineFollowsTheImage",                                                                                            // an image with a slow health check
		"TestNameOfOthers", "TestFailedFirstReleaseLeavesNothing", "TestVolumesOfAGoodFirstReleaseStay", "TestPurgeOfWhatIsLeft", // first installations
	},
	"testdata/e2e/daily": {
		"TestEngineHasLostSomething", "TestFirstInstallThatMakesNoContainerLeavesNothing", "TestEngineStillMakesAContainer", "TestLayersOfOtherWriters",
	},
}

// Engines that have lost something end as they must on each engine and image store, with each
// version of Docker Compose (make test-edges). MENDER_APP_ENGINES chooses engines, and
// MENDER_APP_COMPOSE one version.
func TestEdges(t *testing.T) {
	if os.Getenv("MENDER_APP_EDGES") == "" {
		t.Skip("only with make test-edges")
	}
	programs := map[string]string{}
	for room := range edges {
		programs[room] = testProgram(t, room)
	}
	only := os.Getenv("MENDER_APP_COMPOSE")
	for _, e := range bed.ChosenEngines(t) {
		for _, v := range bed.ComposeVersions {
			if only != "" && only != v.Name {
				continue
			}
			t.Run(e.Name+" with Compose "+v.Name, func(t *testing.T) {
				t.Setenv("MENDER_APP_COMPOSE", v.Name)
				for room, names := range edges {
					t.Run(filepath.Base(room), func(t *testing.T) {
						options := []string{"-test.v", "-test.run=^(" + strings.Join(names, "|") + ")$"}
						said := ""
						if strings.HasPrefix(room, "testdata/") { // it starts devices itself
							cmd := exec.Command(programs[room], append(options, "-test.parallel=2")...)
							cmd.Dir = filepath.Join(bed.Repository(), room)
							cmd.Env = append(os.Environ(), "MENDER_APP_ENGINE="+e.Name, "MENDER_APP_ENGINES="+e.Name)
							out, err := cmd.CombinedOutput()
							require.NoError(t, err, "%s", out)
							said = string(out)
						} else {
							said = inDevice(t, bed.StartWith(t, e), room, programs[room], options...)
						}
						for _, name := range names {
							require.Contains(t, said, "\n--- PASS: "+name+" ")
						}
					})
				}
			})
		}
	}
}
