package image

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

// A build host reads archives that devices refuse, and makes images for devices of them.
func TestOpenOnHost(t *testing.T) {
	bare := makeSample(t, Platform{}, "bare")
	archive := func(listed string, docker bool, samples ...sample) []byte {
		es := oci(t, docker, plain, samples...)
		for i := range es {
			if es[i].Name == "index.json" && listed != "" {
				es[i].Body = string(bytes.Replace([]byte(es[i].Body), []byte(`"mediaType":"`+mediaTypeIndex+`","digest"`), []byte(`"platform":`+listed+`,"mediaType":"`+mediaTypeIndex+`","digest"`), 1))
				require.Contains(t, es[i].Body, "platform")
			}
		}
		return rig.Tar(t, es...)
	}
	for name, c := range map[string]struct {
		archive []byte
		has     string // the image's platform, as far as the archive has it
		err     string // when amd64 is wanted
	}{
		"classic":                 {archive: rig.Tar(t, bare.classic(t, "web:1")...), has: "unknown"},
		"layout":                  {archive: archive("", false, bare), has: "unknown"},
		"hybrid":                  {archive: archive("", true, bare), has: "unknown"},
		"listed":                  {archive: archive(`{"os":"linux","architecture":"x86_64"}`, false, bare), has: "linux/amd64"},
		"listed, hybrid":          {archive: archive(`{"os":"linux","architecture":"amd64"}`, true, bare), has: "linux/amd64"},
		"half listed":             {archive: archive(`{"os":"linux","architecture":""}`, false, bare), has: "linux/unknown"},
		"listed for another":      {archive: archive(`{"os":"linux","architecture":"arm"}`, true, bare), err: "there is linux/arm/v7"},
		"half listed, another":    {archive: archive(`{"os":"windows"}`, false, bare), err: "there is windows/amd64"},
		"listed, malformed":       {archive: archive(`{"os":"linux","architecture":"a\nb"}`, false, bare), err: "platform in the index: malformed platform"},
		"architecture of another": {archive: archive("", false, makeSample(t, Platform{Arch: "arm64"}, "x")), err: "there is linux/arm64"},
		"beside another":          {archive: archive("", true, makeSample(t, armV7, "arm"), bare), has: "unknown"},
		"beside the right one":    {archive: archive("", true, bare, makeSample(t, amd64, "amd")), has: "linux/amd64"},
		"two":                     {archive: archive("", true, bare, makeSample(t, Platform{OS: "linux"}, "two")), err: "several images in the archive suit"},
	} {
		t.Run(name, func(t *testing.T) {
			path := put(t, c.archive)
			_, err := OpenArchive(path)
			require.Error(t, err)
			_, err = ReadStream(bytes.NewReader(c.archive), Limits{}, Handler{})
			require.Error(t, err, "a device refuses it")
			a, err := OpenOnHost(path)
			if err == nil {
				defer a.Close()
				var img *Image
				if img, err = a.Select(amd64); err == nil {
					require.Equal(t, c.has, img.Platform.String())
					img, err = WithPlatform(img, img.Platform.Or(amd64))
					require.NoError(t, err)
					require.NoError(t, Verify(img))
					require.Equal(t, amd64, img.Platform)
					require.True(t, img.tagged("web:1"))
				}
			}
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
		})
	}
}

// One config may be listed for several platforms. How often it is listed is bounded.
func TestListedForSeveral(t *testing.T) {
	bare := makeSample(t, Platform{}, "bare")
	var entries []map[string]any
	es := oci(t, true, plain, bare)
	manifest := func() (d Descriptor) {
		for _, e := range es {
			var m ociManifest
			if json.Unmarshal([]byte(e.Body), &m) == nil && m.Config.Digest == digest.Of(bare.config) {
				return Descriptor{MediaType: mediaTypeManifest, Digest: digest.Of([]byte(e.Body)), Size: int64(len(e.Body))}
			}
		}
		t.Fatal("no manifest")
		return d
	}()
	for _, arch := range []string{"arm64", "amd64", "riscv64"} {
		entries = append(entries, map[string]any{"mediaType": manifest.MediaType, "digest": manifest.Digest, "size": manifest.Size, "platform": map[string]string{"os": "linux", "architecture": arch}})
	}
	write := func(docker int) string {
		for i := range es {
			switch es[i].Name {
			case "index.json":
				es[i].Body = string(encode(map[string]any{"schemaVersion": 2, "manifests": entries}))
			case "manifest.json":
				var list []dockerImage
				require.NoError(t, json.Unmarshal([]byte(es[i].Body), &list))
				for len(list) < docker {
					list = append(list, list[0])
				}
				es[i].Body = string(encode(list))
			}
		}
		return put(t, rig.Tar(t, es...))
	}
	a, err := OpenOnHost(write(1))
	require.NoError(t, err)
	defer a.Close()
	require.Len(t, a.Images(), 3)
	img, err := a.SelectTag("web:1", arm64)
	require.NoError(t, err)
	require.Equal(t, arm64, img.Platform)
	_, err = a.Select(armV7)
	require.ErrorContains(t, err, "there is linux/amd64, linux/arm64, linux/riscv64")

	many, err := OpenOnHost(write(maxImages))
	require.NoError(t, err)
	defer many.Close()
	require.Len(t, many.Images(), 4, "the one of manifest.json is as it is")
}

// The config keeps all else, and gets each key once, however an engine may spell it.
func TestWithPlatform(t *testing.T) {
	for config, want := range map[string]string{
		`{"x":1.50, "rootfs":{}, "a":"<b>"}`:                             `{"a":"\u003cb\u003e","architecture":"arm","os":"linux","rootfs":{},"variant":"v7","x":1.50}`,
		`{"OS":"","oſ":null,"ARCHITECTURE":"","architecture":"","z":{}}`: `{"architecture":"arm","os":"linux","variant":"v7","z":{}}`,
		`null`: `{"architecture":"arm","os":"linux","variant":"v7"}`,
	} {
		img, err := NewOnHost([]byte(config), nil, Platform{})
		require.NoError(t, err)
		img.Manifests = []Digest{img.ConfigDigest}
		_, err = New([]byte(config), nil)
		require.ErrorIs(t, err, ErrNoPlatform)
		got, err := WithPlatform(img, armV7)
		require.NoError(t, err)
		require.Equal(t, want, string(got.Config))
		require.Equal(t, digest.Of(got.Config), got.ConfigDigest)
		require.Empty(t, got.Manifests)
	}
	_, err := NewOnHost([]byte(`{"os":"a b"}`), nil, Platform{})
	require.ErrorContains(t, err, "malformed platform")
}
