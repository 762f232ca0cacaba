package peers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	packaged, own := t.TempDir(), t.TempDir()
	program := func(dir, name string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), mode))
		return path
	}
	t.Setenv("PATH", packaged)
	t.Setenv(Variable, "")
	old := program(packaged, "tool", 0o755)

	found, err := Find("tool")
	require.NoError(t, err)
	require.Equal(t, old, found)
	_, err = Own("tool")
	require.ErrorContains(t, err, "needs tool in the directory that MENDER_APP_PEERS names")
	_, err = Find("other")
	require.ErrorContains(t, err, "needs other on PATH or in the directory that MENDER_APP_PEERS names")

	t.Setenv(Variable, own)
	program(own, "other", 0o644) // no program
	_, err = Find("other")
	require.Error(t, err)
	newer := program(own, "tool", 0o755)
	for _, find := range []func(string) (string, error){Find, Own} {
		found, err = find("tool")
		require.NoError(t, err)
		require.Equal(t, newer, found)
	}
	t.Chdir(filepath.Dir(own))
	t.Setenv(Variable, filepath.Base(own))
	found, err = Find("tool")
	require.NoError(t, err)
	require.Equal(t, newer, found)
}
