package delta_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// unpacked is an Old that has what layers were unpacked to, and no tar.
type unpacked struct{ *tarstore.Store }

func (unpacked) Headers(context.Context, delta.Digest) (delta.HeaderReader, error) {
	return nil, delta.ErrNoObject
}

// A delta of files alone is rebuilt where the headers of old tars are gone; the
// header of any other says which it needs.
func TestFilesOnly(t *testing.T) {
	for name, pair := range map[string]func() (old, new delta.Image){"every operation": fuzzPair, "many files": manyFiles} {
		t.Run(name, func(t *testing.T) {
			old, new := pair()
			store := unpacked{storeOf(t, old)}
			var d bytes.Buffer
			rep, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, encoder.Options{})
			require.NoError(t, err)
			layer := len(rep.Header.Bases) - 1
			require.True(t, rep.Header.Bases[layer].Headers)
			_, err = apply(d.Bytes(), store)
			var oe *delta.OldError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, delta.NoBase, oe.Problem)
			require.Equal(t, rep.Header.Bases[layer], oe.Base)

			d.Reset()
			rep, err = encoder.Encode(t.Context(), &d, []delta.Image{old}, new, encoder.Options{FilesOnly: true})
			require.NoError(t, err)
			for _, b := range rep.Header.Bases {
				require.False(t, b.Headers)
			}
			require.Equal(t, delta.Delta, rep.Objects[len(rep.Objects)-1].Encoding)
			sinks, err := apply(d.Bytes(), store)
			require.NoError(t, err)
			for _, s := range sinks {
				require.True(t, s.committed)
			}
		})
	}
}
