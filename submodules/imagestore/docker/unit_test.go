package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

func TestHost(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"DOCKER_CONFIG": dir}
	getenv := func(n string) string { return env[n] }
	host := func(words ...string) string {
		t.Helper()
		h, err := Host(words, getenv)
		require.NoError(t, err)
		return h
	}
	require.Equal(t, client.DefaultDockerHost, host("docker"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"currentContext":"field"}`), 0o600))
	_, err := Host(nil, getenv)
	require.ErrorContains(t, err, `docker context "field"`)
	for name, endpoint := range map[string]string{"field": "unix:///field.sock", "lab": "tcp://lab:2375"} {
		sum := sha256.Sum256([]byte(name))
		meta := filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]))
		require.NoError(t, os.MkdirAll(meta, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(meta, "meta.json"), []byte(`{"Name":"`+name+`","Endpoints":{"docker":{"Host":"`+endpoint+`"}}}`), 0o600))
	}
	require.Equal(t, "unix:///field.sock", host("docker"))
	env["DOCKER_CONTEXT"] = "lab"
	require.Equal(t, "tcp://lab:2375", host("docker"))
	require.Equal(t, "unix:///field.sock", host("docker", "--context=field"))
	env["DOCKER_HOST"] = "unix:///env.sock"
	require.Equal(t, "unix:///env.sock", host("docker"))
	require.Equal(t, "unix:///flag.sock", host("docker", "-H", "unix:///flag.sock"))
	_, err = Open(t.Context(), "ssh://me@there", nil)
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "ssh is not supported")
}

func TestChainedAndHeld(t *testing.T) {
	d := func(s string) image.Digest { return digest.Of([]byte(s)) }
	img := func(ids ...string) Image {
		var i Image
		for _, s := range ids {
			i.DiffIDs = append(i.DiffIDs, d(s))
			i.layers = append(i.layers, image.Descriptor{Digest: d("blob " + s), Size: 1, Annotations: map[string]string{"a": "b"}})
		}
		i.Identity = imagestore.Identity{DiffIDs: i.DiffIDs}
		return i
	}
	all := []Image{img("a", "b"), img("b", "c"), img("a")}
	want := func(ids ...string) []image.Digest { return img(ids...).DiffIDs }

	got := chained(all, want("a", "b", "c"))
	require.Len(t, got, 2)
	require.NotContains(t, got, d("c"), "there, but not in this place")
	require.Empty(t, chained(all, want("c", "a")))
	got = chained(all, want("a", "x", "a"))
	require.Empty(t, got, "a layer that comes again must be in the archive")

	got = held(all, want("c", "a"), func(x image.Descriptor) bool { return x.Digest != d("blob c") })
	require.Equal(t, map[image.Digest]image.Descriptor{d("a"): {Digest: d("blob a"), Size: 1}}, got)
}

func FuzzReadLoad(f *testing.F) {
	f.Add(`{"stream":"Loaded image: x"}` + "\n")
	f.Add(`{"errorDetail":{"message":"no space left on device"},"error":"no space left on device"}`)
	f.Add(`{"stream":"Error unpacking image x: y"}`)
	f.Fuzz(func(_ *testing.T, s string) { _ = readLoad(strings.NewReader(s)) })
}

func TestReadLoad(t *testing.T) {
	require.NoError(t, readLoad(strings.NewReader(`{"stream":"Loaded image: x\n"}`+"\r\n"+`{"status":"x","progressDetail":{}}`)))
	require.ErrorContains(t, readLoad(strings.NewReader(`{"stream":"a"}{"error":"broken","errorDetail":{"message":"broken"}}`)), "docker load: broken")
	require.ErrorContains(t, readLoad(strings.NewReader(`{"stream":"Error unpacking image web:1: apply layer"}`)), "Error unpacking")
	require.ErrorIs(t, readLoad(strings.NewReader(`{"errorDetail":{"message":"write x: no space left on device"}}`)), submodules.ErrSpace)
	require.Error(t, readLoad(strings.NewReader(`{"stream":`)))
}
