package docker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUpperOf(t *testing.T) {
	mount := protoFields{{1, "overlay"}, {2, "overlay"}, {4, "index=off"}, {4, "lowerdir=/s/2/fs:/s/1/fs"}}.append(nil)
	reply := protoFields{{1, string(mount)}}.append(nil)
	dir, err := upperOf(reply)
	require.NoError(t, err)
	require.Equal(t, "/s/2/fs", dir)
	for name, b := range map[string][]byte{
		"none": nil, "two": append(reply, reply...), "cut": reply[:len(reply)-1], "no mount": {1<<3 | lengthDelimited, 1, 0xff},
		"64 bits": {1<<3 | 1, 0, 0, 0, 0, 0, 0, 0, 0}, "huge": {1<<3 | lengthDelimited, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		_, err := upperOf(b)
		require.Error(t, err, name)
	}
	got, err := readProto(append([]byte{3 << 3, 0x96, 1}, reply...))
	require.NoError(t, err, "numbers are passed over")
	require.Equal(t, protoFields{{1, string(mount)}}, got)
}

func FuzzReadProto(f *testing.F) {
	f.Add(protoFields{{1, "overlay"}, {4, strings.Repeat("x", 200)}}.append(nil))
	f.Add([]byte{1<<3 | lengthDelimited, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := readProto(b)
		if err != nil {
			return
		}
		again, err := readProto(fields.append(nil))
		require.NoError(t, err)
		require.Equal(t, fields, again)
		_, _ = upperOf(b)
	})
}
