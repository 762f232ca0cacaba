package daily

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/output/outputtest"
	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// SAVE treats a device, a pipe and a link at its path as package output says.
func TestSaveOutputs(t *testing.T) {
	d := e2e.DeviceAsShipped(t)
	image := d.Share("web.tar")
	require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o755))
	require.NoError(t, bed.WriteArchive(image, e2e.Web(t, "1", "")))
	d.MustRun(t, e2e.ComposeSubmodule, "LOAD", "shop", "shop/web:1", image)
	saved := d.Share("saved.tar")
	d.MustRun(t, e2e.ComposeSubmodule, "SAVE", "shop", "shop/web:1", saved)
	want, err := os.ReadFile(saved)
	require.NoError(t, err)
	outputtest.Test(t, outputtest.Command{
		Run: func(name string) (string, error) {
			return outputtest.Said(d.Command(t.Context(), e2e.ComposeSubmodule, "SAVE", "shop", "shop/web:1", name))
		},
		Whole: func(t testing.TB, content []byte) {
			t.Helper()
			require.Equal(t, len(want), len(content))
		},
		Dir: filepath.Dir(image),
		Shell: func(script string) error {
			out, err := outputtest.Said(d.Command(t.Context(), "sh", "-ec", script))
			require.NoError(t, err, out)
			return nil
		},
	})
	d.MustRun(t, e2e.ComposeSubmodule, "PURGE", "shop")
}
