package delta_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/encoder"
)

// thriftPair has new text, and gzip members that changed a little.
func thriftPair(t *testing.T) (old, new delta.Image) {
	gzipped := func(b []byte) []byte { return gz(t, deflate.GNU(6), deflate.GzipHead, b) }
	var was, is []tarFile
	for i := range int64(6) {
		text := prose(i, 30_000)
		name := fmt.Sprintf("doc/%d.gz", i)
		was = append(was, tarFile{name: name, typ: '0', data: gzipped(text)})
		is = append(is, tarFile{name: name, typ: '0', data: gzipped(append([]byte("changed\n"), text...))})
		is = append(is, tarFile{name: fmt.Sprintf("new/%d", i), typ: '0', data: prose(100+i, 34_000)})
	}
	return imageOf("a:1", delta.Tar, makeTar(was...)), imageOf("a:2", delta.Tar, makeTar(is...))
}

// Each step of thrift makes a delta that takes less to decode and is larger. The last ones
// neither model new files nor compress streams. All make the same image.
func TestThrift(t *testing.T) {
	old, new := thriftPair(t)
	r, err := new.Objects[0].Open()
	require.NoError(t, err)
	want, err := io.ReadAll(r)
	require.NoError(t, err)
	var first, last *encoder.Report
	for thrift := range encoder.MaxThrift + 1 {
		var d, again bytes.Buffer
		rep, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, encoder.Options{Thrift: thrift})
		require.NoError(t, err)
		sinks, err := apply(d.Bytes(), storeOf(t, old))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, sinks[0].Bytes()))
		if thrift%3 == 0 {
			_, err = encoder.Encode(t.Context(), &again, []delta.Image{old}, new, encoder.Options{Thrift: thrift, Workers: 1})
			require.NoError(t, err)
			require.True(t, bytes.Equal(d.Bytes(), again.Bytes()), "the same input gives the same bytes")
		}
		if last != nil {
			require.Less(t, rep.Work.Instructions(), last.Work.Instructions(), "thrift %d", thrift)
			require.Greater(t, rep.Size, last.Size, "thrift %d", thrift)
		} else {
			first = rep
			require.Positive(t, rep.Work.Deflated)
			require.Contains(t, rep.Header.Features, delta.FeatureDeflate)
		}
		last = rep
	}
	require.Zero(t, last.Work.Deflated)
	require.NotContains(t, last.Header.Features, delta.FeatureDeflate)
	require.Less(t, last.Work.Bits, first.Work.Bits/20, "names are still modelled")
}
