package delta_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// applyFar applies the golden delta that needs a temporary file, with another size of it
// in its header.
func applyFar(t *testing.T, dir string, temp func(int64) int64) error {
	t.Helper()
	b, err := os.ReadFile(golden{name: "far"}.file())
	require.NoError(t, err)
	r := bufio.NewReader(bytes.NewReader(b))
	h, err := delta.ReadHeader(r, decoder.Knows)
	require.NoError(t, err)
	h.Temp = temp(h.Temp)
	head, err := delta.AppendHeader(nil, h)
	require.NoError(t, err)
	d, err := decoder.New(io.MultiReader(bytes.NewReader(head), r))
	require.NoError(t, err)
	return d.Apply(context.Background(), tarstore.New(), dir, func(delta.ObjectInfo) (delta.Sink, error) { return &bufferSink{}, nil })
}

// The temporary file is in the directory that is asked for, has at most the size that the
// header says, and is gone afterwards. An error of it is not taken for one of the delta.
func TestTemporaryFile(t *testing.T) {
	same := func(n int64) int64 { return n }
	dir := t.TempDir()
	require.NoError(t, applyFar(t, dir, same))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	err = applyFar(t, filepath.Join(dir, "none"), same)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.False(t, errors.Is(err, delta.ErrFormat), err)

	err = applyFar(t, dir, func(n int64) int64 { return n / 4 })
	require.ErrorIs(t, err, delta.ErrFormat)
	left, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A delta for devices that do not know the feature, and that of a single file, needs no
// temporary file, however much is new.
func TestNoTemporaryFile(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	new := makeTar(tarFile{name: "a", typ: '0', data: noise(1, 5<<19)}, tarFile{name: "b", typ: '0', data: noise(2, 2<<20)}, tarFile{name: "c", typ: '0', data: noise(1, 5<<19)})
	for name, c := range map[string]struct {
		kind    delta.Kind
		options encoder.Options
		far     bool
	}{
		"an image":            {delta.Tar, encoder.Options{}, true},
		"without the feature": {delta.Tar, encoder.Options{NoFar: true}, false},
		"a file":              {delta.Blob, encoder.Options{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			rep, err := encoder.Encode(t.Context(), &b, nil, imageOf("new", c.kind, new), c.options)
			require.NoError(t, err)
			if c.far {
				require.Contains(t, rep.Header.Features, delta.FeatureFar)
				require.Positive(t, rep.Header.Temp)
				require.Less(t, rep.Size, int64(5<<20))
			} else {
				require.NotContains(t, rep.Header.Features, delta.FeatureFar)
				require.Zero(t, rep.Header.Temp)
				require.Greater(t, rep.Size, int64(13<<19))
			}
		})
	}
}
