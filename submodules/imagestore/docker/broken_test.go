package docker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// TestImageThatTheEngineCannotDescribe: a power cut emptied the file lower of
// an image's top layer. 20.10 lists the image and fails to inspect it, for
// ever: the image can still be found, deleted, and loaded again.
func TestImageThatTheEngineCannotDescribe(t *testing.T) {
	e, app := engine(t)
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app + "a"}), layerTar(t, entry{"b", app + "b"}))
	load := func() error { return e.loadBytes(t, app, ours(t, s, app+":1"), LoadSpec{Want: s.identity()}) }
	damage := func() {
		o := inPlace(t, e)
		require.NoError(t, os.Truncate(filepath.Join(layerDir(t, o, s, 1), "lower"), 0))
		_, err := e.cli.ImageInspect(t.Context(), s.img.ConfigDigest.String())
		if err == nil {
			t.Skip("this engine describes it all the same")
		}
	}
	require.NoError(t, load())
	whole, err := e.Find(t.Context(), app, s.identity(), "")
	require.NoError(t, err)

	damage()
	img, err := e.Find(t.Context(), app, s.identity(), "")
	require.NoError(t, err)
	require.Error(t, img.broken)
	img.broken, img.Size, whole.Size = nil, 0, 0
	require.Equal(t, whole, img)
	require.ErrorIs(t, e.Verify(t.Context(), app, s.identity(), ""), submodules.ErrContent)
	require.NoError(t, load())
	require.NoError(t, e.Verify(t.Context(), app, s.identity(), ""))

	damage()
	img, err = e.Find(t.Context(), app, s.identity(), "")
	require.NoError(t, err)
	require.NoError(t, e.Delete(t.Context(), app, img, app+":1"))
	_, err = e.Find(t.Context(), app, s.identity(), "")
	require.ErrorIs(t, err, submodules.ErrNotFound)
}
