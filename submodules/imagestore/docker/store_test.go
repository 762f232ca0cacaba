package docker

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
)

// unpacked is the directory with the files of layer n of an image.
func (e *Engine) unpacked(t *testing.T, s sample, n int) string {
	t.Helper()
	o, err := e.openOverlay(t.Context())
	require.NoError(t, err)
	if o != nil {
		return filepath.Join(layerDir(t, o, s, n), "diff")
	}
	at, err := e.openSnapshots(t.Context())
	require.NoError(t, err)
	if at == nil {
		t.Skip("the engine's disk is out of reach")
	}
	defer at.Close()
	root, err := at.dir(t.Context(), image.ChainIDs(s.img.DiffIDs)[n])
	require.NoError(t, err)
	defer root.Close()
	return root.Name()
}

// twice reports whether the engine's store has each layer twice: as the blob it
// came as, and unpacked.
func (e *Engine) twice(t *testing.T) bool {
	t.Helper()
	ctd, err := e.containerd(t.Context())
	require.NoError(t, err)
	return ctd
}

// spoilBlob changes a byte of the blob of layer n of an image.
func (e *Engine) spoilBlob(t *testing.T, app string, s sample, n int) {
	t.Helper()
	img, err := e.Find(t.Context(), app, s.identity(), "")
	require.NoError(t, err)
	dirs, err := e.contentDirs(t.Context())
	require.NoError(t, err)
	f, err := dirs.open(img.layers[n].Digest)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	spoilt := bytes.Clone(b)
	spoilt[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(f.Name(), spoilt, 0o644))
}

// lose empties a file of layer n of an image, and spoils whatever else the store
// could bring it back from.
func (e *Engine) lose(t *testing.T, app string, s sample, n int, name string) {
	t.Helper()
	require.NoError(t, os.Truncate(filepath.Join(e.unpacked(t, s, n), name), 0))
	if e.twice(t) {
		e.spoilBlob(t, app, s, n)
	}
}
