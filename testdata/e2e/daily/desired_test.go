package daily

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// A release that its policy does not let start is loaded and takes the place of the one
// before. A person starts it, and a rollback brings back what ran.
func TestDesiredState(t *testing.T) {
	d := e2e.Device(t)
	policy := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(policy, []byte("desired_state = \"stopped\"\n"), 0o644))
	running := func() string { return d.MustRun(t, "docker", "ps", "--quiet") }
	idle := e2e.Release(t, d, "2", "", "--policy", policy)

	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	w := e2e.Watch(t, d)
	e2e.Mender(t, d, "install", idle)
	require.Empty(t, running())
	e2e.Mender(t, d, "rollback")
	e2e.Says(t, w, "web 1")
	d.MustProvide(t, e2e.Provides("1"))

	e2e.Mender(t, d, "install", idle)
	e2e.Mender(t, d, "commit")
	require.Empty(t, running())
	d.MustProvide(t, e2e.Provides("2"))
	require.Contains(t, d.MustRun(t, "mender-app", "list"), "stopped")
	d.MustRun(t, "mender-app", "start", "shop")
	e2e.Says(t, w, "web 2")
}
