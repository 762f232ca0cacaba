package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The Mender clients run the state scripts that app-gen puts into an artifact, and one
// that fails keeps the release from being installed.
func TestStateScripts(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.use(t, d)
			scripts := t.TempDir()
			script := func(name, text string) string {
				path := filepath.Join(scripts, name)
				require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
				return "--script=" + path
			}
			tell := script("ArtifactInstall_Enter_00", "echo enter >>/run/told\n")
			leave := script("ArtifactCommit_Leave_00", "echo commit >>/run/told\n")
			mender(t, d, "install", release(t, d, "1", "", tell, leave))
			require.Equal(t, "enter\n", d.MustRun(t, "cat", "/run/told"))
			mender(t, d, "commit")
			require.Equal(t, "enter\ncommit\n", d.MustRun(t, "cat", "/run/told"))
			d.MustProvide(t, provides("1"))

			before := unchanging(d.MustState(t))
			menderFails(t, d, "install", release(t, d, "2", "", script("ArtifactInstall_Enter_00", "exit 1\n")))
			require.Equal(t, before, unchanging(d.MustState(t)))
			d.MustProvide(t, provides("1"))
		})
	}
}
