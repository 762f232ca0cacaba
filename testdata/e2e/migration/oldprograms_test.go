package migration

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A device gets the newer programs by an update of its system, at any time. They read
// the journal and the store of the older ones, and go on in each phase of a deployment.
// The artifacts of the older app-gen are installed and are bases for the newer one.
func TestProgramsUpgradedInEachPhase(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs of an earlier commit")
	}
	old := e2e.OlderPrograms(t)
	bed.Require(t, "mender", "mender-artifact")
	for _, c := range []struct {
		phase string // in which the older programs stop
		stop  [][]string
		point string // at which the last command of stop is killed; "" is at its end
		next  []string
		ends  string // the version that then runs
	}{
		{"downloading", [][]string{{"install"}}, "Download/called.LOAD:1", []string{"mender-app", "resume"}, "1"},
		{"loaded", [][]string{{"install"}}, "ArtifactInstall/enter.installing:1", []string{"mender", "install"}, "2"},
		{"installing", [][]string{{"install"}}, "ArtifactInstall/called.ROLLOUT:1", []string{"mender-app", "resume"}, "1"},
		{"installed", [][]string{{"install"}}, "", []string{"mender", "commit"}, "2"},
		{"committed", [][]string{{"install"}, {"commit"}}, "Cleanup/enter.cleaning:1", []string{"mender", "commit"}, "2"},
		{"cleaning", [][]string{{"install"}, {"commit"}}, "Cleanup/wrote.app.json:1", []string{"mender", "commit"}, "2"},
		{"rolling-back", [][]string{{"install"}, {"rollback"}}, "ArtifactRollback/called.ROLLBACK:1", []string{"mender-app", "resume"}, "1"},
		{"rolled-back", [][]string{{"install"}, {"rollback"}}, "Cleanup/call.DELETE:1", []string{"mender-app", "resume"}, "1"},
	} {
		t.Run(c.phase, func(t *testing.T) {
			d := e2e.Device(t)
			require.NoError(t, d.Install(old))
			w := e2e.Watch(t, d)
			file := map[string]string{"1": e2e.OlderRelease(t, d, "1", e2e.Compose("1")), "2": e2e.OlderRelease(t, d, "2", e2e.Compose("2"), "--base", d.Share("shop-1.mender"))}
			args := func(command []string, version string) []string {
				if command[len(command)-1] == "install" {
					return append(command[:len(command):len(command)], file[version])
				}
				return command
			}
			e2e.Mender(t, d, "install", file["1"])
			e2e.Mender(t, d, "commit")
			for i, command := range c.stop {
				if i == len(c.stop)-1 && c.point != "" {
					e2e.Killed(t, d, "app "+c.point, args(command, "2")...)
				} else {
					e2e.Mender(t, d, args(command, "2")...)
				}
			}
			journal, err := os.ReadFile(d.Path("/data/mender-app/shop/app.json"))
			require.NoError(t, err)
			require.Regexp(t, `"phase": "`+c.phase+`"`, string(journal))

			programs, err := bed.Programs()
			require.NoError(t, err)
			require.NoError(t, d.Install(programs))
			d.MustRun(t, "mender-app", "status")
			if next := args(c.next, "2"); next[0] == "mender" {
				e2e.Mender(t, d, next[1:]...)
				if next[1] == "install" {
					e2e.Mender(t, d, "commit")
				}
			} else {
				d.MustRun(t, next[0], next[1:]...)
			}
			e2e.Says(t, w, "web "+c.ends)
			d.MustProvide(t, e2e.Provides(c.ends))
			d.MustRun(t, "mender-app", "verify", "shop")

			// The next update is a delta over either release.
			three := e2e.Release(t, d, "3", "", "--base", file["1"], "--base", file["2"])
			e2e.Mender(t, d, "install", three)
			e2e.Mender(t, d, "commit")
			e2e.Says(t, w, "web 3")
			d.MustProvide(t, e2e.Provides("3"))
			d.MustRun(t, "mender-app", "verify", "shop")
		})
	}
}
