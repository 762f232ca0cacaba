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
