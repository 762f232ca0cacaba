package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/store"
)

// testImage is an image of one layer with one file.
func testImage(t *testing.T, content string) *image.Image {
	t.Helper()
	layer := []byte(archive(t, part{tar.Header{Typeflag: tar.TypeReg, Name: "file", Size: int64(len(content))}, content}))
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []digest.Digest{digest.Of(layer)}},
	})
	require.NoError(t, err)
	img, err := image.New(config, []image.Layer{{DiffID: digest.Of(layer), Size: int64(len(layer)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer)), nil
	}}})
	require.NoError(t, err)
	return img
}

// TestMaker: the artifact of an installed release has the release's components, manifests,
// policy and statement. An image with two names is in it once.
func TestMaker(t *testing.T) {
	s := store.At(t.TempDir())
	a, err := s.Create("shop")
	require.NoError(t, err)
	web := testImage(t, "web")
	text := []byte("a program")
	r := &store.Release{
		ID: "1-shop-1", ArtifactName: "shop-1", Version: "1.0", Orchestrator: "docker-compose", Platform: "linux/amd64",
		Env: map[string]string{"NAME": "value"}, Policy: json.RawMessage(`{"version":"1.0","a":"<&>"}`),
		Components: []store.Component{
			{Type: "image", URL: "shop/web:1", Digest: web.ConfigDigest, DiffIDs: web.DiffIDs},
			{Type: "image", URL: "shop/web:same", Digest: web.ConfigDigest, DiffIDs: web.DiffIDs},
			{Type: "binary", URL: "till", Digest: digest.Of(text)},
		},
	}
	require.NoError(t, a.PutRelease(r))
	require.NoError(t, os.WriteFile(filepath.Join(a.ReleaseManifests(r.ID), "docker-compose.yml"), []byte("services: {}\n"), 0o644))
	saves := 0
	var warned []string
	maker := func() *Maker {
		read, err := a.Release(r.ID) // as the store has it
		require.NoError(t, err)
		return &Maker{
			App: a, Release: read, DeviceType: "pump", Dir: t.TempDir(), Warn: func(line string) { warned = append(warned, line) },
			Save: func(_ context.Context, c store.Component, path string) error {
				saves++
				if c.Type == "binary" {
					return os.WriteFile(path, text, 0o600)
				}
				var out bytes.Buffer
				require.NoError(t, image.WriteArchive(&out, image.ArchiveSpec{Image: web}))
				return os.WriteFile(path, out.Bytes(), 0o600)
			},
		}
	}
	read := func(spec *mender.Spec) *artifact.Metadata {
		t.Helper()
		var out bytes.Buffer
		require.NoError(t, mender.Write(&out, *spec, mender.Options{}))
		in, err := mender.NewReader(&out, mender.ReadOptions{})
		require.NoError(t, err)
		require.Equal(t, []string{"pump"}, in.Header().DeviceTypes)
		require.Equal(t, "1.0", in.Header().Provides["data-partition.shop.application_version"])
		meta, warnings, err := artifact.ParseMetadata(in.Header().MetaData)
		require.NoError(t, err)
		require.Empty(t, warnings)
		info, err := in.Next()
		require.NoError(t, err)
		require.Equal(t, artifact.ImagesPayload, info.Name)
		var got []digest.Digest
		require.NoError(t, artifact.ReadImages(in, artifact.ReadOptions{}, func(i artifact.ImageInfo, content io.Reader) error {
			got = append(got, i.Digest)
			_, err := io.Copy(io.Discard, content)
			return err
		}))
		require.Equal(t, []digest.Digest{web.ConfigDigest, digest.Of(text)}, got)
		_, err = in.Next()
		require.NoError(t, err)
		root, err := os.OpenRoot(t.TempDir())
		require.NoError(t, err)
		defer root.Close()
		_, err = artifact.ReadManifests(in, root, artifact.ManifestLimits{})
		require.NoError(t, err)
		_, err = root.Stat("docker-compose.yml")
		require.NoError(t, err)
		return meta
	}
	spec, err := maker().Make(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, saves)
	meta := read(spec)
	require.Len(t, meta.Components, 3)
	require.Equal(t, web.DiffIDs[0], meta.Components[0].Layers[0].DiffID)
	require.Equal(t, r.Env, meta.Env)
	require.JSONEq(t, string(r.Policy), string(meta.Policy))
	require.ElementsMatch(t, []string{artifact.FeaturePolicy, artifact.FeatureFiles}, meta.Requires)

	// What the maker signed is kept, unless it is about something else.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	payload, err := os.Open(filepath.Join(filepath.Dir(pathOf(t, spec)), artifact.ManifestsPayload))
	require.NoError(t, err)
	defer payload.Close()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	sum, err := artifact.ReadManifests(payload, root, artifact.ManifestLimits{})
	require.NoError(t, err)
	r.Statement, err = statement.Sign(statement.Of(meta, sum), mender.Options{Key: key})
	require.NoError(t, err)
	require.NoError(t, a.PutRelease(r))
	spec, err = maker().Make(t.Context())
	require.NoError(t, err)
	require.Empty(t, warned)
	signed, err := statement.Parse(read(spec).Statement)
	require.NoError(t, err)
	require.True(t, signed.SignedBy(key.Public()))

	// The header has what the statement says of it, or a device would refuse the backup.
	about := statement.Of(meta, sum)
	about.Reach = &statement.Reach{
		Provides: map[string]string{"data-partition.shop.application_version": "1.0"}, Clears: []string{"data-partition.shop.*"}, DeviceTypes: []string{"other", spec.DeviceTypes[0]},
		Depends: map[string][]string{"rootfs-image.version": {"5"}}, DependsNames: []string{"shop-1"},
	}
	r.Statement, err = statement.Sign(about, mender.Options{Key: key})
	require.NoError(t, err)
	require.NoError(t, a.PutRelease(r))
	spec, err = maker().Make(t.Context())
	require.NoError(t, err)
	require.Empty(t, warned)
	require.NoError(t, about.Reach.Covers(statement.ReachToWrite(spec)))
	require.Contains(t, read(spec).Requires, artifact.FeatureReach)

	require.NoError(t, os.WriteFile(filepath.Join(a.ReleaseManifests(r.ID), "docker-compose.yml"), []byte("services: {web: {}}\n"), 0o644))
	spec, err = maker().Make(t.Context())
	require.NoError(t, err)
	require.Len(t, warned, 1)
	require.Nil(t, read(spec).Statement)

	web = testImage(t, "another one")
	_, err = maker().Make(t.Context())
	require.ErrorContains(t, err, "shop/web:1: SAVE wrote an image other")
}

// pathOf is a file of an artifact.
func pathOf(t *testing.T, spec *mender.Spec) string {
	t.Helper()
	f, err := spec.Files[0].Open()
	require.NoError(t, err)
	defer f.Close()
	return f.(*os.File).Name()
}
