package migration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The Mender clients run the state scripts that app-gen puts into an artifact, and one
// that fails keeps the release from being installed.
func TestStateScripts(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			scripts := t.TempDir()
			script := func(name, text string) string {
				path := filepath.Join(scripts, name)
				require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
				return "--script=" + path
			}
			tell := script("ArtifactInstall_Enter_00", "echo enter >>/run/told\n")
			leave := script("ArtifactCommit_Leave_00", "echo commit >>/run/told\n")
			e2e.Mender(t, d, "install", e2e.Release(t, d, "1", "", tell, leave))
			require.Equal(t, "enter\n", d.MustRun(t, "cat", "/run/told"))
			e2e.Mender(t, d, "commit")
			require.Equal(t, "enter\ncommit\n", d.MustRun(t, "cat", "/run/told"))
			d.MustProvide(t, e2e.Provides("1"))

			before := e2e.Unchanging(d.MustState(t))
			e2e.MenderFails(t, d, "install", e2e.Release(t, d, "2", "", script("ArtifactInstall_Enter_00", "exit 1\n")))
			require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
			d.MustProvide(t, e2e.Provides("1"))
		})
	}
}
