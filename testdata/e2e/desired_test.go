package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A release that its policy does not let start is loaded and takes the place of the one
// before. A person starts it, and a rollback brings back what ran.
func TestDesiredState(t *testing.T) {
	d := device(t)
	policy := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(policy, []byte("desired_state = \"stopped\"\n"), 0o644))
	running := func() string { return d.MustRun(t, "docker", "ps", "--quiet") }
	idle := release(t, d, "2", "", "--policy", policy)

	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	w := watch(t, d)
	mender(t, d, "install", idle)
	require.Empty(t, running())
	mender(t, d, "rollback")
	says(t, w, "web 1")
	d.MustProvide(t, provides("1"))

	mender(t, d, "install", idle)
	mender(t, d, "commit")
	require.Empty(t, running())
	d.MustProvide(t, provides("2"))
	require.Contains(t, d.MustRun(t, "mender-app", "list"), "stopped")
	d.MustRun(t, "mender-app", "start", "shop")
	says(t, w, "web 2")
}
