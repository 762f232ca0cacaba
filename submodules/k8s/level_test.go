package k8s

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/level"
)

// TestLevel: a release that reaches more of the node than LEVEL gives its application is
// refused before the cluster is asked anything.
func TestLevel(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("app.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {hostPID: true, containers: [{name: c, image: 'a:1'}]}\n")
	config := t.TempDir()
	read := func(setting string) (Settings, error) {
		require.NoError(t, os.WriteFile(filepath.Join(config, ConfigName), []byte(setting), 0o600))
		return ReadSettings(func(name string) string {
			if name == submodules.EnvConfigDir {
				return config
			}
			return ""
		})
	}
	for setting, says := range map[string]string{
		"LEVEL=confined\n":                       "app.yaml:1: Pod/p: spec.hostPID, which needs the level trusted, and LEVEL in mender-app-k8s.conf gives this application confined",
		"LEVEL=\"confined shop:host-network\"\n": "gives this application host-network",
		"LEVEL=\"trusted shop:confined\"\n":      "gives this application confined",
	} {
		set, err := read(setting)
		require.NoError(t, err)
		_, err = (&session{set: set}).readRelease(t.Context(), "shop", dir, true)
		require.ErrorIs(t, err, submodules.ErrContent)
		require.ErrorContains(t, err, says)
	}
	for _, setting := range []string{"", "LEVEL=trusted\n", "LEVEL=\"confined shop:trusted\"\n"} {
		set, err := read(setting)
		require.NoError(t, err)
		require.Equal(t, level.Trusted, set.Levels.Of("shop"), setting)
	}
	_, err := read("LEVEL=root\n")
	require.ErrorContains(t, err, "LEVEL")
}
