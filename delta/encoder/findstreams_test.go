package encoder

import (
	"archive/zip"
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/codec"
)

// Headers of entries that cannot be followed are passed over.
func TestFindStreams(t *testing.T) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range []string{"a", "b"} {
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = w.Write(bytes.Repeat([]byte("some text of "+name+"\n"), 100))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	b := out.Bytes()
	require.Len(t, scanStreams(b, codec.MaxPlain), 2)
	long := slices.Clone(b)
	long[26], long[28] = 0xff, 0xff // names that end beyond the file
	require.Len(t, scanStreams(long, codec.MaxPlain), 1)
	secret := slices.Clone(b)
	secret[6] |= 1
	require.Len(t, scanStreams(secret, codec.MaxPlain), 1)
}
