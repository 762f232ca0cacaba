package generator

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/policy"
)

// A hook that would not be run, or could not, is refused where the artifact is made.
func TestHooksAreThere(t *testing.T) {
	dir := t.TempDir()
	p := &policy.Policy{Hooks: []policy.Hook{{Name: "check"}}}
	require.ErrorContains(t, checkHooks(dir, p), "hooks/check is missing")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hooks"), 0o755))
	file := filepath.Join(dir, "hooks", "check")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	require.ErrorContains(t, checkHooks(dir, p), "hooks/check is not an executable file")
	require.NoError(t, os.Chmod(file, 0o755))
	require.NoError(t, checkHooks(dir, p))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "hooks", "pre-stop"), nil, 0o755))
	err := checkHooks(dir, p)
	require.ErrorIs(t, err, policy.ErrPolicy)
	require.ErrorContains(t, err, `hooks/pre-stop would never be run: name it, with [[hooks]] and name = "pre-stop"`)
	require.NoError(t, os.Rename(filepath.Join(dir, "hooks", "pre-stop"), filepath.Join(dir, "hooks", "helper")))
	require.NoError(t, checkHooks(dir, p), "a file of another name is the application's own business")
}
