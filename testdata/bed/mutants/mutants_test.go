package mutants

import (
	"archive/tar"
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A seed gives the same mutant each time. Each mutant differs from the original, and
// the manifest of most of them lists what is in them.
func TestMake(t *testing.T) {
	inner := archive(t, map[string]string{"manifests/docker-compose.yml": "services:\n  web:\n    image: a\n"})
	header := archive(t, map[string]string{"header-info": `{"payloads":[{"type":"app"}]}`})
	payload := archive(t, map[string]string{"manifests.tar": string(compressed(inner))})
	whole := takeApart(archive(t, map[string]string{
		"version": `{"format":"mender","version":3}`, "manifest": "-\n", "header.tar": string(header), "data/0000.tar": string(payload),
	}))
	require.True(t, whole.mend())
	original := whole.bytes()
	require.True(t, Consistent(original))

	const count = 200
	consistent, same := 0, 0
	for i := range uint64(count) {
		data, what := Make(rand.New(rand.NewPCG(1, i)), original)
		again, _ := Make(rand.New(rand.NewPCG(1, i)), original)
		require.Equal(t, data, again, what)
		if bytes.Equal(data, original) {
			same++
		}
		if Consistent(data) {
			consistent++
		}
	}
	require.Less(t, same, count/10)
	require.Greater(t, consistent, count/3)
	require.Less(t, consistent, count)
}

// What follows the end of a tar changes nothing in it; what stands in its files does.
func TestConsistent(t *testing.T) {
	made := func(payload []byte) []byte {
		whole := takeApart(archive(t, map[string]string{"version": "3", "manifest": "-\n", "data/0000.tar": string(payload)}))
		require.True(t, whole.mend())
		return whole.bytes()
	}
	with := func(payload []byte) *part {
		whole := takeApart(made(compressed(archive(t, map[string]string{"manifests.tar": "manifests"}))))
		p := whole.find("data/")
		p.data = payload
		p.touch()
		return whole
	}
	good := compressed(archive(t, map[string]string{"manifests.tar": "manifests"}))
	require.True(t, Consistent(with(good).bytes()))
	require.True(t, Consistent(with(append(good, "more"...)).bytes()))
	require.False(t, Consistent(with(compressed(archive(t, map[string]string{"manifests.tar": "manifestz"}))).bytes()))
	require.False(t, Consistent(with(good[:len(good)/2]).bytes()))
}

func archive(t *testing.T, members map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"version", "manifest", "header.tar", "header-info", "data/0000.tar", "manifests.tar", "manifests/docker-compose.yml"} {
		data, ok := members[name]
		if !ok {
			continue
		}
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644}))
		_, err := w.Write([]byte(data))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}
