package docker

import (
	"fmt"
	"testing"

	dimage "github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Somebody else's images come and go while ours are looked for.
func TestImagesGoMeanwhile(t *testing.T) {
	e, app := engine(t)
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app}))
	require.NoError(t, e.loadBytes(t, app, ours(t, s, app+":1"), imagestore.LoadRequest{Want: s.identity()}))
	var others [][]byte
	for i := range 20 {
		others = append(others, ours(t, makeImage(t, "amd64", layerTar(t, entry{"a", fmt.Sprint(app, i)})), fmt.Sprintf("%s-other:%d", app, i)))
	}
	done := make(chan error, 1)
	go func() {
		defer close(done)
		for i, b := range others {
			if err := e.loadBytes(t, app+"-other", b, imagestore.LoadRequest{URL: fmt.Sprintf("%s-other:%d", app, i)}); err != nil {
				done <- err
				return
			}
			img, err := e.Inspect(t.Context(), fmt.Sprintf("%s-other:%d", app, i))
			if err == nil {
				_, err = e.cli.ImageRemove(t.Context(), img.ID, dimage.RemoveOptions{Force: true})
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	for going := true; going; {
		select {
		case err := <-done:
			require.NoError(t, err)
			going = false
		default:
		}
		own, err := e.Own(t.Context(), app)
		require.NoError(t, err)
		require.Len(t, own, 1)
		_, err = e.all(t.Context())
		require.NoError(t, err)
	}
}
