package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/output/outputtest"
)

// SAVE treats a device, a pipe and a link at its path as package output says.
func TestSaveOutputs(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	image := d.Image(t, d.ref("1"), map[string][]byte{"etc/version": []byte("1" + d.ns)}, "VERSION=1").File(t)
	d.byHand(d.submodule(), "LOAD", d.app, d.ref("1"), image)
	t.Cleanup(func() { _ = d.command(d.submodule(), "DELETE", d.ref("1"), d.app).Run() })
	saved := filepath.Join(t.TempDir(), "saved.tar")
	d.byHand(d.submodule(), "SAVE", d.app, d.ref("1"), saved)
	want, err := os.ReadFile(saved)
	require.NoError(t, err)
	outputtest.Test(t, outputtest.Command{
		Run: func(name string) (string, error) {
			return outputtest.Said(d.command(d.submodule(), "SAVE", d.app, d.ref("1"), name))
		},
		Whole: func(t testing.TB, content []byte) {
			t.Helper()
			require.Equal(t, len(want), len(content))
		},
	})
}
