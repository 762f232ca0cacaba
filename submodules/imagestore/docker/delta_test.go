package docker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/storetest"
)

// text is content that deltas well and compresses badly.
func text(seed string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(string(digest.Of([]byte(seed + string(rune(i))))))
	}
	return b.String()
}

func pair(t *testing.T, app string) (old, new sample) {
	big := text(app, 300000)
	base := layerTar(t, entry{"base", app + text("base", 50000)})
	old = makeImage(t, "amd64", base, layerTar(t, entry{"d/big", big}, entry{"d/" + strings.Repeat("long-name/", 15) + "x", "same"}, entry{"gone", "gone"}))
	changed := big[:100000] + "a change" + big[100010:]
	new = makeImage(t, "amd64", base, layerTar(t, entry{"d/big", changed}, entry{"d/" + strings.Repeat("long-name/", 15) + "x", "same"}, entry{"new", "new"}),
		layerTar(t, entry{"third", app}))
	return old, new
}

// outOfReach makes the engine one whose disk is not here, until the test ends.
func (e *Engine) outOfReach(t *testing.T) {
	host := e.host
	e.host, e.contents = "tcp://elsewhere", nil
	t.Cleanup(func() { e.host = host })
}

// A delta is rebuilt out of what the engine has: in place, and out of docker
// save where the store is out of reach.
func TestLoadDelta(t *testing.T) {
	e, app := engine(t)
	for _, route := range []string{"in place", "in place, compressed", "docker save"} {
		t.Run(route, func(t *testing.T) {
			var said []string
			e.log = func(l string) { t.Log(l); said = append(said, l) }
			old, new := pair(t, app+route)
			content := ours(t, old, app+":1")
			if strings.HasSuffix(route, "compressed") {
				content = dockerArchive(t, old, app+":1") // as it is pulled, the containerd store keeps it
			}
			require.NoError(t, e.loadBytes(t, app, content, imagestore.LoadRequest{}))
			d := storetest.Delta(t, old.img, new.img)
			require.Less(t, len(d), 20000)
			if route == "docker save" {
				e.outOfReach(t)
			}
			spec := imagestore.LoadRequest{Want: new.identity(), Stage: true}
			flipped := bytes.Clone(d)
			flipped[len(d)-100] ^= 4
			err := e.loadBytes(t, app, flipped, spec) // it may seem to be the base's fault
			require.True(t, errors.Is(err, submodules.ErrContent) || errors.Is(err, submodules.ErrBase), "%v", err)
			require.ErrorIs(t, e.loadBytes(t, app, d[:len(d)/2], spec), submodules.ErrContent)
			require.ErrorIs(t, e.loadBytes(t, app, d, imagestore.LoadRequest{Want: old.identity()}), nil) // present: not even read
			_, other := pair(t, app+"other")
			require.ErrorIs(t, e.loadBytes(t, app, d, imagestore.LoadRequest{Want: other.identity()}), submodules.ErrContent)

			said = nil
			require.NoError(t, e.loadBytes(t, app, d, spec))
			word, _, _ := strings.Cut(route, ",")
			require.Contains(t, strings.Join(said, "\n"), word)
			require.NotContains(t, strings.Join(said, "\n"), "temporary file")
			require.NoError(t, e.Verify(t.Context(), app, new.identity(), ""))
			require.NoError(t, e.Verify(t.Context(), app, old.identity(), ""))
			// Again, without knowing what it is: nothing moves.
			require.NoError(t, e.loadBytes(t, app, d, imagestore.LoadRequest{Stage: true}))
			// Each is whole without the other.
			img, err := e.Find(t.Context(), app, old.identity(), "")
			require.NoError(t, err)
			require.NoError(t, e.Delete(t.Context(), app, img, app+":1"))
			require.NoError(t, e.Verify(t.Context(), app, new.identity(), ""))
			img, err = e.Find(t.Context(), app, new.identity(), "")
			require.NoError(t, err)
			var saved bytes.Buffer
			require.NoError(t, e.Save(t.Context(), img, "x:1", t.TempDir(), &saved))
			require.Equal(t, ours(t, new, "x:1"), saved.Bytes())
			require.NoError(t, e.Delete(t.Context(), app, img, ""))

			// Without the base.
			err = e.loadBytes(t, app, d, spec)
			require.ErrorIs(t, err, submodules.ErrBase)
		})
	}
}

// layerDir is where the engine unpacked a layer to.
func (e *Engine) layerDir(t *testing.T, d image.Digest) string {
	t.Helper()
	o, err := e.openOverlay(t.Context())
	require.NoError(t, err)
	var root *os.Root
	if o != nil {
		root, err = o.files(d)
	} else {
		p, perr := e.openContainerdOld(t.Context(), t.TempDir())
		require.NoError(t, perr)
		if p == nil || p.at == nil {
			t.Skip("the engine's disk is out of reach")
		}
		defer p.Close()
		root, err = p.at.dir(t.Context(), p.layers[d].chain)
	}
	require.NoError(t, err)
	defer root.Close()
	return root.Name()
}

// A damaged base is named, and nothing is loaded.
func TestLoadDeltaDamagedBase(t *testing.T) {
	e, app := engine(t)
	old, new := pair(t, app)
	require.NoError(t, e.loadBytes(t, app, ours(t, old, app+":1"), imagestore.LoadRequest{}))
	file := filepath.Join(e.layerDir(t, old.img.DiffIDs[1]), "d", "big")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	content[5000] ^= 1
	require.NoError(t, os.WriteFile(file, content, 0o644))
	err = e.loadBytes(t, app, storetest.Delta(t, old.img, new.img), imagestore.LoadRequest{Want: new.identity()})
	require.ErrorIs(t, err, submodules.ErrBase)
	require.ErrorContains(t, err, `"d/big"`)
	_, err = e.Find(context.Background(), app, new.identity(), imagestore.OwnRef(app, new.img.ConfigDigest))
	require.ErrorIs(t, err, submodules.ErrNotFound)
}
