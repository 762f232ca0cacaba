package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
)

// installed is a plain rig with a release.
func installed(t *testing.T, r release) (*rig, *client) {
	g := newPlainRig(t)
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, r)))
	require.NoError(t, c.commit())
	g.w.calls = nil
	return g, c
}

// A delta of a file is applied to what SAVE wrote before LOAD overwrites it, and so is
// the delta of an image for a sub-module without the feature.
func TestDeltaIsApplied(t *testing.T) {
	for name, c := range map[string]struct{ old, next release }{"of a file": {f1, d2}, "of an image": {v1, i2}} {
		t.Run(name, func(t *testing.T) {
			g, cl := installed(t, c.old)
			require.NoError(t, cl.install(g.newTree(t, c.next)))
			require.Equal(t, []string{"SAVE shop web:1", "SAVE shop side:1", "LOAD shop web:1", "LOAD shop side:1"}, g.w.calls[:4], "the copy is the base: it is saved once")
			g.runs(t, "shop", &c.next)
			require.NoError(t, cl.rollback())
			g.runs(t, "shop", &c.old)
			g.clean(t, "shop")
			require.NoError(t, cl.install(g.newTree(t, c.next)))
			require.NoError(t, cl.commit())
			g.runs(t, "shop", &c.next)
			g.clean(t, "shop")
			require.NoDirExists(t, filepath.Join(g.dir, "store", ".mender-app", "tmp"))
		})
	}
}

// A delta over a file that this device does not have is refused before anything
// is called.
func TestDeltaOverAnotherFile(t *testing.T) {
	g, c := installed(t, f1)
	r := asDelta(asFiles(v2))
	r.over = "web zero"
	err := c.install(g.newTree(t, r))
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "which this device does not have: install the full artifact")
	for _, call := range g.w.calls {
		require.False(t, strings.HasPrefix(call, "LOAD") || strings.HasPrefix(call, "SAVE"), call)
	}
	g.runs(t, "shop", &f1)
}

// A file that was changed on the device is not built upon.
func TestDeltaOverAChangedFile(t *testing.T) {
	g, c := installed(t, f1)
	other := digest.Of([]byte("image other"))
	g.w.texts[other], g.w.content[other] = "other", "whole"
	g.w.tags["web:1"] = other
	err := c.install(g.newTree(t, d2))
	require.ErrorIs(t, err, submodules.ErrBase)
	require.ErrorContains(t, err, "web:1 is "+other.String()+" on this device")
	require.Equal(t, other, g.w.tags["web:1"], "it is not overwritten")
}

// A delta that makes another file than announced is refused before LOAD.
func TestDeltaMakesAnotherFile(t *testing.T) {
	for name, delta := range map[string]string{
		"another file": fileDelta("web one", "web TWO"), "another size": fileDelta("web one", "web twelve"),
		"garbage": "garbage", "nothing": "", "bsdiff": "BSDIFF40", "vcdiff": "\xd6\xc3\xc4\x00",
		"cut off": fileDelta("web one", "web two")[:60],
	} {
		t.Run(name, func(t *testing.T) {
			g, c := installed(t, f1)
			tr := g.newTree(t, d2)
			tr.payload[artifact.ImagesPayload] = withDelta(t, delta)
			err := c.install(tr)
			require.ErrorIs(t, err, artifact.ErrPayload, "%v", err)
			g.runs(t, "shop", &f1)
			g.clean(t, "shop")
			entries, err := os.ReadDir(filepath.Join(g.dir, "store"))
			require.NoError(t, err)
			for _, e := range entries {
				require.NoDirExists(t, filepath.Join(g.dir, "store", e.Name(), "tmp"))
			}
		})
	}
}

// The temporary files of a delta count in the check of free space.
func TestDeltaNeedsSpace(t *testing.T) {
	c := d2.meta().Components[0]
	require.Equal(t, c.PayloadBytes+c.Size+int64(len("image web one")), spooledBytes(submodules.Info{}, c))
	c = f2.meta().Components[0]
	require.Equal(t, c.Size, spooledBytes(submodules.Info{}, c))
}

// A delta of an image that cannot be applied changes nothing.
func TestDeltaOfAnImageIsWrong(t *testing.T) {
	t.Run("over an image of elsewhere", func(t *testing.T) {
		g, c := installed(t, v1)
		r := i2
		r.over = "web zero"
		err := c.install(g.newTree(t, r))
		require.ErrorIs(t, err, ErrUnfit)
		require.ErrorContains(t, err, "which this device does not have: install the full artifact")
		for _, call := range g.w.calls {
			require.Regexp(t, "^LIST", call, "nothing but questions")
		}
		g.runs(t, "shop", &v1)
	})
	t.Run("over an image that was changed", func(t *testing.T) {
		g, c := installed(t, v1)
		other := digest.Of([]byte("image other"))
		g.w.texts[other], g.w.content[other] = "other", "whole"
		g.w.tags["web:1"] = other
		err := c.install(g.newTree(t, i2))
		require.ErrorIs(t, err, submodules.ErrBase)
		require.ErrorContains(t, err, "install the full artifact")
		require.Equal(t, other, g.w.tags["web:1"], "it is not overwritten")
	})
	t.Run("it makes another image", func(t *testing.T) {
		g, c := installed(t, v1)
		tr := g.newTree(t, i2)
		tr.payload[artifact.ImagesPayload] = withDelta(t, fileDelta("web one", "web TWO"))
		err := c.install(tr)
		require.ErrorIs(t, err, artifact.ErrPayload, "%v", err)
		g.runs(t, "shop", &v1)
		g.clean(t, "shop")
	})
}

// The temporary files of an image's delta count in the check of free space: the
// delta, the old image, which is taken to be as large as the new one, and that.
func TestImageDeltaNeedsSpace(t *testing.T) {
	c := i2.meta().Components[0]
	whole := c.ConfigSize + c.Layers[0].Size
	require.Equal(t, c.PayloadBytes+2*whole, spooledBytes(submodules.Info{}, c))
	able := submodules.Info{Features: []string{submodules.FeatureDelta}}
	require.Equal(t, c.PayloadBytes, spooledBytes(able, c))
	require.True(t, rebuildsHere(submodules.Info{}, c))
	require.False(t, rebuildsHere(able, c))
}
