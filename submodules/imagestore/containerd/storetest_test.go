package containerd

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/storetest"
)

func TestStore(t *testing.T) {
	d := &damaged{Store: openStore(t), t: t}
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		app := fmt.Sprintf("t%d", time.Now().UnixNano())
		d.SetLog(t.Logf)
		t.Cleanup(func() {
			list, err := d.client.ImageService().List(context.Background())
			require.NoError(t, err)
			for _, img := range list {
				if strings.Contains(img.Name, app) {
					_ = d.Unname(context.Background(), img.Name)
				}
			}
		})
		return storetest.Fixture{
			Store: d.RepairStore(func(context.Context, []string, []Container) ([]string, error) { return nil, nil }, nil),
			Apps:  [2]string{app, app + "-b"}, Platform: image.Platform{OS: "linux", Arch: runtime.GOARCH},
			Names: func(t *testing.T, app string) map[string]image.Digest {
				list, err := d.all(t.Context())
				require.NoError(t, err)
				names := map[string]image.Digest{}
				for _, st := range list {
					for _, n := range st.names {
						if strings.Contains(n, app) {
							names[n] = st.config
						}
					}
				}
				return names
			},
			Unpacked: func(t *testing.T, id imagestore.Identity, layer int) string {
				dir, release, err := d.layerDir(t.Context(), image.ChainIDs(id.DiffIDs)[layer])
				require.NoError(t, err)
				defer release()
				require.NotNil(t, dir)
				defer dir.Close()
				return dir.Name()
			},
			Blob: func(t *testing.T, id imagestore.Identity, layer int) string {
				roots, err := d.Storage(t.Context())
				require.NoError(t, err)
				return filepath.Join(roots[0], "blobs/sha256", id.DiffIDs[layer].Hex())
			},
			Free: func(t *testing.T) int64 {
				free, err := d.Room(t.Context())
				require.NoError(t, err)
				return free
			},
		}
	})
}
