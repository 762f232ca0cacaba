package decoder_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
)

func blob(b string) delta.Object {
	return delta.Object{Digest: digest.Of([]byte(b)), Size: int64(len(b)), Kind: delta.Blob, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(b))), nil
	}}
}

// headOnly fails the test if a delta is read further than its head.
type headOnly struct {
	io.Reader
	t    *testing.T
	left int
}

func (h *headOnly) Read(b []byte) (int, error) {
	if h.left == 0 {
		h.t.Error("the body was read")
		return 0, errors.New("the body was read")
	}
	n, err := h.Reader.Read(b[:min(len(b), h.left)])
	h.left -= n
	return n, err
}

// A delta that does not make what is announced is told from its head alone.
func TestAnnounced(t *testing.T) {
	old := delta.Image{Name: "1", Objects: []delta.Object{blob("same"), blob("one")}}
	new := delta.Image{Name: "2", Objects: []delta.Object{blob("new"), blob("same"), blob("more")}}
	var d bytes.Buffer
	rep, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, encoder.Options{})
	require.NoError(t, err)
	want := rep.Header.Objects
	require.Equal(t, delta.Omitted, want[1].Encoding)
	head, err := delta.AppendHeader(nil, rep.Header)
	require.NoError(t, err)

	open := func(announced []delta.ObjectInfo) error {
		d, err := decoder.New(&headOnly{bytes.NewReader(d.Bytes()), t, len(head)})
		require.NoError(t, err)
		return d.Header().CheckAnnounced(announced)
	}
	require.NoError(t, open(want))
	loose := slices.Clone(want)
	loose[0].Size, loose[0].Encoding, loose[2].Encoding = -1, "", ""
	require.NoError(t, open(loose))

	for name, c := range map[string]struct {
		index  int
		field  string
		change func([]delta.ObjectInfo) []delta.ObjectInfo
	}{
		"another digest":     {0, "digest", func(o []delta.ObjectInfo) []delta.ObjectInfo { o[0].Digest = digest.Of(nil); return o }},
		"a smaller size":     {2, "size", func(o []delta.ObjectInfo) []delta.ObjectInfo { o[2].Size--; return o }},
		"another kind":       {0, "kind", func(o []delta.ObjectInfo) []delta.ObjectInfo { o[0].Kind = delta.Tar; return o }},
		"announced omitted":  {2, "encoding", func(o []delta.ObjectInfo) []delta.ObjectInfo { o[2].Encoding = delta.Omitted; return o }},
		"announced brought":  {1, "encoding", func(o []delta.ObjectInfo) []delta.ObjectInfo { o[1].Encoding = ""; return o }},
		"announced a delta":  {2, "encoding", func(o []delta.ObjectInfo) []delta.ObjectInfo { o[2].Encoding = delta.Delta; return o }},
		"one less":           {2, "", func(o []delta.ObjectInfo) []delta.ObjectInfo { return o[:2] }},
		"one more":           {3, "", func(o []delta.ObjectInfo) []delta.ObjectInfo { return append(o, o[0]) }},
		"another order":      {0, "digest", func(o []delta.ObjectInfo) []delta.ObjectInfo { o[0], o[2] = o[2], o[0]; return o }},
		"nothing is allowed": {0, "", func(o []delta.ObjectInfo) []delta.ObjectInfo { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			err := open(c.change(slices.Clone(want)))
			var ae *delta.AnnouncedError
			require.ErrorAs(t, err, &ae)
			require.Equal(t, c.index, ae.Index)
			require.Equal(t, c.field, ae.Field)
			require.NotEmpty(t, ae.Error())
		})
	}
}
