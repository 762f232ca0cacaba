package docker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules/imagestore"

	"github.com/mender-app/mender-app/submodules"
)

// TestImageThatTheEngineCannotDescribe: a power cut emptied the file lower of
// an image's top layer. 20.10 lists the image and fails to inspect it, for
// ever: the image can still be found, deleted, and loaded again.
func TestImageThatTheEngineCannotDescribe(t *testing.T) {
	e, app := engine(t)
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app + "a"}), layerTar(t, entry{"b", app + "b"}))
	load := func() error {
		return e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{Want: s.identity()})
	}
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
	require.Error(t, img.inspectErr)
	img.inspectErr, img.Size, whole.Size = nil, 0, 0
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

// TestImageWithoutNames: a power cut took the names of an image that had just
// been loaded. A suspect one is loaded again if it is damaged, and it can be
// deleted, broken or not.
func TestImageWithoutNames(t *testing.T) {
	e, app := engine(t)
	other := makeImage(t, "amd64", layerTar(t, entry{"c", app + "c"}))
	require.NoError(t, e.loadBytes(t, app, ours(t, other, app+":2"), imagestore.LoadRequest{Want: other.identity(), URL: app + ":2"}))
	o := inPlace(t, e)
	for _, file := range []string{"", "lower", "diff/b"} {
		t.Run(file, func(t *testing.T) {
			s := makeImage(t, "amd64", layerTar(t, entry{"a", app + "a"}), layerTar(t, entry{"b", app + "b"}))
			spec := imagestore.LoadRequest{Want: s.identity(), Distrust: true}
			unnamed := func() Image {
				require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), spec))
				img, err := e.Find(t.Context(), app, s.identity(), "")
				require.NoError(t, err)
				for _, tag := range img.Tags { // to move a name leaves the image
					require.NoError(t, e.cli.ImageTag(t.Context(), other.img.ConfigDigest.String(), tag))
				}
				if file != "" {
					o = inPlace(t, e)
					require.NoError(t, os.Truncate(filepath.Join(layerDir(t, o, s, 1), file), 0))
				}
				img, err = e.Find(t.Context(), app, s.identity(), "")
				require.NoError(t, err)
				require.Empty(t, img.Tags)
				return img
			}
			unnamed()
			require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), spec))
			require.NoError(t, e.Verify(t.Context(), app, s.identity(), ""))
			require.NoError(t, e.Delete(t.Context(), app, unnamed()))
			_, err := e.Find(t.Context(), app, s.identity(), "")
			require.ErrorIs(t, err, submodules.ErrNotFound)
		})
	}
}
