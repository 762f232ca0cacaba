package delta_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
)

// damage is an Old in which some files, or the headers of an object, are not
// what they were, although they have the right size.
type damage struct {
	delta.Old
	paths   map[string]bool
	headers bool
	opened  map[string]bool
}

type flipped struct{ delta.File }

func (f flipped) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if at := f.Size() / 2; off <= at && at < off+int64(n) {
		b[at-off] ^= 4
	}
	return n, err
}

func (d *damage) OpenFile(ctx context.Context, in delta.Digest, path string) (delta.File, error) {
	f, err := d.Old.OpenFile(ctx, in, path)
	d.opened[path] = true
	if err == nil && d.paths[path] {
		return flipped{f}, nil
	}
	return f, err
}

type otherHeaders struct{ delta.HeaderReader }

func (h otherHeaders) Next() ([]byte, error) {
	b, err := h.HeaderReader.Next()
	if err == nil {
		b = bytes.Clone(b)
		b[110] ^= 1 // a digit of the user
	}
	return b, err
}

func (d *damage) Headers(ctx context.Context, in delta.Digest) (delta.HeaderReader, error) {
	h, err := d.Old.Headers(ctx, in)
	if err == nil && d.headers {
		return otherHeaders{h}, nil
	}
	return h, err
}

// manyFiles is a pair with files that are kept, moved and changed.
func manyFiles() (old, new delta.Image) {
	var a, b []tarFile
	a = append(a, tarFile{name: "lib/", typ: '5'})
	b = append(b, tarFile{name: "lib/", typ: '5'})
	for i := range 400 {
		name := fmt.Sprintf("lib/%03d", i)
		data := noise(int64(i), 700+i)
		a = append(a, tarFile{name: name, typ: '0', data: data})
		switch i % 4 {
		case 1:
			data = bytes.Clone(data)
			data[i/2]++
		case 2:
			name = "moved/" + name
		}
		b = append(b, tarFile{name: name, typ: '0', data: data})
	}
	old = delta.Image{Name: "app:1", Objects: []delta.Object{bytesObject(delta.Tar, makeTar(a...))}}
	new = delta.Image{Name: "app:2", Objects: []delta.Object{bytesObject(delta.Tar, makeTar(b...))}}
	return old, new
}

// Every old file that is read, copied or changed, is named when it is damaged,
// and nothing is committed.
func TestDamagedFile(t *testing.T) {
	for name, pair := range map[string]func() (delta.Image, delta.Image){"kinds": fuzzPair, "many": manyFiles} {
		t.Run(name, func(t *testing.T) {
			old, new := pair()
			var d bytes.Buffer
			_, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, encoder.Options{})
			require.NoError(t, err)
			store := storeOf(t, old)
			whole := &damage{Old: store, opened: map[string]bool{}}
			_, err = apply(d.Bytes(), whole)
			require.NoError(t, err)
			require.NotEmpty(t, whole.opened)
			n := 0
			for path := range whole.opened {
				if n++; testing.Short() && n > 12 {
					break
				}
				sinks, err := apply(d.Bytes(), &damage{Old: store, paths: map[string]bool{path: true}, opened: map[string]bool{}})
				var oe *delta.OldError
				require.ErrorAs(t, err, &oe, path)
				require.Equal(t, delta.DamagedFile, oe.Problem)
				require.Equal(t, path, oe.Path)
				require.Empty(t, oe.Others)
				require.Equal(t, old.Name, oe.Base.Image)
				require.False(t, sinks[len(sinks)-1].committed)
			}
		})
	}
}

// Of several damaged files of a group the group's first and last are named.
func TestDamagedFiles(t *testing.T) {
	old, new := manyFiles()
	d, _ := roundTrip(t, []delta.Image{old}, new)
	for _, paths := range []map[string]bool{
		{"lib/001": true, "lib/005": true, "lib/009": true},
		{"lib/000": true, "lib/004": true, "lib/006": true},
	} {
		sinks, err := apply(d, &damage{Old: storeOf(t, old), paths: paths, opened: map[string]bool{}})
		var oe *delta.OldError
		require.ErrorAs(t, err, &oe)
		require.Equal(t, delta.DamagedFile, oe.Problem)
		require.NotEmpty(t, oe.Others)
		require.False(t, sinks[len(sinks)-1].committed)
	}
}

func TestDamagedHeaders(t *testing.T) {
	old, new := manyFiles()
	d, _ := roundTrip(t, []delta.Image{old}, new)
	_, err := apply(d, &damage{Old: storeOf(t, old), headers: true, opened: map[string]bool{}})
	var oe *delta.OldError
	require.ErrorAs(t, err, &oe)
	require.Equal(t, delta.BadHeaders, oe.Problem)
	require.Equal(t, old.Objects[0].Digest, oe.Base.Digest)
}

// A delta of another version is refused by that name.
func TestOtherVersion(t *testing.T) {
	head, err := delta.AppendHeader(nil, delta.Header{Image: "app:2"})
	require.NoError(t, err)
	head[len(delta.Magic)] = delta.Version + 1
	_, err = decoder.New(bytes.NewReader(head))
	var fe *delta.FeatureError
	require.ErrorAs(t, err, &fe)
	require.Equal(t, "format version 2", fe.Feature)
	_, err = decoder.New(io.MultiReader())
	require.ErrorIs(t, err, delta.ErrFormat)
}
