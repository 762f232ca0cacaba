package docker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		e, app := engine(t)
		store := e.RepairStore(t.TempDir(), nobody)
		f := storetest.Fixture{
			Store: store, Apps: [2]string{app, app + "-b"}, Platform: image.Platform{OS: "linux", Arch: "amd64"},
			Names: func(t *testing.T, app string) map[string]image.Digest {
				all, err := e.all(t.Context())
				require.NoError(t, err)
				names := map[string]image.Digest{}
				for _, img := range all {
					for _, tag := range img.Tags {
						if strings.Contains(tag, app) {
							names[tag] = img.Config
						}
					}
				}
				return names
			},
			Unpacked: func(t *testing.T, id imagestore.Identity, layer int) string {
				return e.unpacked(t, sample{img: &image.Image{DiffIDs: id.DiffIDs}}, layer)
			},
			Free: func(t *testing.T) int64 {
				free, err := store.Room(t.Context())
				require.NoError(t, err)
				return free
			},
		}
		f.Classic = !e.twice(t)
		if !f.Classic {
			f.Blob = func(t *testing.T, id imagestore.Identity, layer int) string {
				img, err := e.Find(t.Context(), app, id, "")
				require.NoError(t, err)
				dirs, err := e.contentDirs(t.Context())
				require.NoError(t, err)
				blob, err := dirs.open(img.layers[layer].Digest)
				require.NoError(t, err)
				require.NoError(t, blob.Close())
				return blob.Name()
			}
		}
		return f
	})
}
