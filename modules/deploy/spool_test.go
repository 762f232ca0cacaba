package deploy

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
)

// What the shell reference puts before the texts that describe it has to be
// kept: no more than there is room for.
func TestSpoolIsBounded(t *testing.T) {
	free := func(n int64) func(string) (int64, uint64, error) {
		return func(string) (int64, uint64, error) { return n, 1, nil }
	}
	for _, n := range []int64{0, 1, marginBytes, marginBytes + 1, marginBytes + 21, 1 << 30, 1<<50 + 12345} {
		room, err := spoolRoom("/x", free(n))
		require.NoError(t, err)
		require.Positive(t, room, "0 would be no bound")
		if n > marginBytes+1 {
			require.NoError(t, checkFree([]need{{"/x", room}}, free(n)), "what preflight allows")
			require.Error(t, checkFree([]need{{"/x", room + 2}}, free(n)), "and all of it")
		}
	}

	g := newRig(t)
	tr := g.newTree(t, v1)
	m := v1.meta()
	m.Components = nil // as the reference writes it, but for the announced size
	m.Sizes = &artifact.Sizes{ImagesPayload: 1 << 55}
	raw, err := m.Encode()
	require.NoError(t, err)
	writeFile(t, tr.Dir()+"/header/meta-data", string(raw))
	var images bytes.Buffer
	w := tar.NewWriter(&images)
	require.NoError(t, w.WriteHeader(&tar.Header{
		Name: "images/" + digestOf("", "x").Hex() + "/image.img", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1 << 54,
	}))
	tr.payload[artifact.ImagesPayload] = images.Bytes()
	e := g.engine()
	err = e.download(t.Context(), tr.Tree, tr.streams())
	require.ErrorIs(t, err, artifact.ErrSpool)
	require.ErrorContains(t, err, "may be kept")
}
