package docker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUpperOf(t *testing.T) {
	mount := protoFields{{1, "overlay"}, {2, "overlay"}, {4, "index=off"}, {4, "lowerdir=/s/2/fs:/s/1/fs"}}.message()
	reply := protoFields{{1, string(mount)}}.message()
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

// Only what ends by itself is ended: a container's lease is not.
func TestExpiring(t *testing.T) {
	label := func(key string) protoField {
		return protoField{3, string(protoFields{{1, key}, {2, "2026-11-21T00:00:00Z"}}.message())}
	}
	lease := func(fields ...protoField) protoField { return protoField{1, string(protoFields(fields).message())} }
	created := protoField{2, string([]byte{1 << 3, 0x96, 1})}
	reply := protoFields{
		lease(protoField{1, "load"}, created, label("a"), label(expireLabel)),
		lease(protoField{1, "container"}, created),
		lease(protoField{1, "other"}, created, label("containerd.io/gc.expired")),
		lease(protoField{1, "pull"}, label(expireLabel)),
	}.message()
	ids, err := expiring(reply)
	require.NoError(t, err)
	require.Equal(t, []string{"load", "pull"}, ids)
	ids, err = expiring(nil)
	require.NoError(t, err)
	require.Empty(t, ids)
	for name, b := range map[string][]byte{
		"cut": reply[:len(reply)-1], "no lease": protoFields{{1, "\xff"}}.message(), "no label": protoFields{lease(protoField{3, "\xff"})}.message(),
	} {
		_, err := expiring(b)
		require.Error(t, err, name)
	}
}

func FuzzReadProto(f *testing.F) {
	f.Add(protoFields{{1, "overlay"}, {4, strings.Repeat("x", 200)}}.message())
	f.Add([]byte{1<<3 | lengthDelimited, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := readProto(b)
		if err != nil {
			return
		}
		again, err := readProto(fields.message())
		require.NoError(t, err)
		require.Equal(t, fields, again)
		_, _ = upperOf(b)
		_, _ = expiring(b)
	})
}
