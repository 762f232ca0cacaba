package docker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// containerdArchive is the images as docker save writes them with containerd's
// image store: compressed blobs, the manifests after them. The digests are the
// first image's manifest, and an index of all of them, which is what the engine
// calls the image if there are several. edit changes the members; may be nil.
func containerdArchive(t *testing.T, edit func(map[string][]byte), samples ...sample) (archive []byte, manifest, index image.Digest) {
	t.Helper()
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	put := func(b []byte) image.Descriptor {
		d := digest.Of(b)
		files["blobs/sha256/"+d.Hex()] = b
		return image.Descriptor{MediaType: "application/vnd.docker.distribution.manifest.v2+json", Digest: d, Size: int64(len(b))}
	}
	var list []image.Descriptor
	var docker []any
	for _, s := range samples {
		var names []string
		layers, err := s.reg.Layers()
		require.NoError(t, err)
		for _, l := range layers {
			r, err := l.Compressed()
			require.NoError(t, err)
			b, err := io.ReadAll(r)
			require.NoError(t, err)
			names = append(names, "blobs/sha256/"+put(b).Digest.Hex())
		}
		put(s.img.Config)
		b, err := s.reg.RawManifest()
		require.NoError(t, err)
		list = append(list, put(b))
		docker = append(docker, map[string]any{"Config": "blobs/sha256/" + s.img.ConfigDigest.Hex(), "RepoTags": []string{"elsewhere:1"}, "Layers": names})
	}
	marshal := func(v any) []byte {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return b
	}
	top := list
	if len(list) > 1 {
		d := put(marshal(map[string]any{"schemaVersion": 2, "manifests": list}))
		d.MediaType = "application/vnd.oci.image.index.v1+json"
		index, top = d.Digest, []image.Descriptor{d}
	}
	files["index.json"] = marshal(map[string]any{"schemaVersion": 2, "manifests": top})
	files["manifest.json"] = marshal(docker)
	if edit != nil {
		edit(files)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644}))
		_, err := w.Write(files[name])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.Bytes(), list[0].Digest, index
}

// The shell reference calls an image by its engine's ID, which in containerd's
// image store is the digest of a manifest or an index. It is known by that
// digest afterwards, where the archive has the manifest and it leads to what was
// loaded.
func TestLoadByManifest(t *testing.T) {
	e, app := engine(t)
	ctx := t.Context()
	s := makeImage(t, "amd64", layerTar(t, entry{"a", app}), layerTar(t, entry{"b", app + "b"}))
	arm := makeImage(t, "arm64", layerTar(t, entry{"a", app + "arm"}))
	one, manifest, _ := containerdArchive(t, nil, s)
	both, _, index := containerdArchive(t, nil, s, arm)
	for title, c := range map[string]struct {
		archive []byte
		digest  image.Digest
	}{"manifest": {one, manifest}, "index": {both, index}, "a manifest in an index": {both, manifest}} {
		t.Run(title, func(t *testing.T) {
			known := imagestore.Identity{Config: c.digest}
			spec := imagestore.LoadRequest{URL: app + ":1", Want: known, Platform: image.Platform{OS: "linux", Arch: "amd64"}}
			require.NoError(t, e.loadBytes(t, app, c.archive, spec))
			img, err := e.Find(ctx, app, known, "")
			require.NoError(t, err)
			require.Equal(t, s.identity(), img.Identity)
			require.ElementsMatch(t, []string{imagestore.ManifestRef(app, c.digest), app + ":1"}, img.Tags)
			require.True(t, img.Known(app, c.digest))
			require.NoError(t, e.Verify(ctx, app, known, ""))
			require.NoError(t, e.loadBytes(t, app, nil, spec), "nothing is read")
			own, err := e.Own(ctx, app)
			require.NoError(t, err)
			require.Len(t, own, 1)
			_, err = e.Find(ctx, app+"-b", known, "")
			require.ErrorIs(t, err, submodules.ErrNotFound, "another application does not know it by that")

			// Another release has it by its config: each has its own reference.
			require.NoError(t, e.loadBytes(t, app, nil, imagestore.LoadRequest{Want: s.identity(), Stage: true}), "nothing is read")
			require.NoError(t, e.Delete(ctx, app, img, app+":1"))
			_, err = e.Find(ctx, app, known, "")
			require.ErrorIs(t, err, submodules.ErrNotFound)
			img, err = e.Find(ctx, app, s.identity(), "")
			require.NoError(t, err)
			require.Equal(t, []string{imagestore.OwnRef(app, s.img.ConfigDigest)}, img.Tags)
			require.NoError(t, e.Delete(ctx, app, img))
			_, err = e.Find(ctx, app, s.identity(), "")
			require.ErrorIs(t, err, submodules.ErrNotFound)
		})
	}

	member := "blobs/sha256/" + manifest.Hex()
	other, _, _ := containerdArchive(t, nil, makeImage(t, "amd64", layerTar(t, entry{"a", app + "other"})))
	for title, archive := range map[string][]byte{
		"of another image": other,
		"not there":        first(containerdArchive(t, func(f map[string][]byte) { delete(f, member) }, s)),
		"damaged": first(containerdArchive(t, func(f map[string][]byte) {
			f[member] = bytes.Replace(f[member], []byte(`"schemaVersion":2`), []byte(`"schemaVersion":1`), 1)
		}, s)),
		"not in index.json": first(containerdArchive(t, func(f map[string][]byte) { f["index.json"] = []byte(`{"manifests":[]}`) }, s)),
		// Of that name, and with the config of the image that is loaded.
		"of another digest": first(containerdArchive(t, func(f map[string][]byte) {
			f[member] = []byte(strings.Replace(string(f[member]), "{", `{"annotations":{},`, 1))
		}, s)),
	} {
		t.Run("refused: "+title, func(t *testing.T) {
			err := e.loadBytes(t, app, archive, imagestore.LoadRequest{Want: imagestore.Identity{Config: manifest}})
			require.ErrorIs(t, err, submodules.ErrContent)
			require.ErrorContains(t, err, manifest.String()+" is announced")
			own, err := e.Own(ctx, app)
			require.NoError(t, err)
			require.Empty(t, own)
		})
	}

	// One that is gone comes back out of the same archive.
	spec := imagestore.RepairRequest{
		App: app, Dir: t.TempDir(), Source: sources(t, one),
		Want: []imagestore.Damaged{{URL: app + ":1", Identity: imagestore.Identity{Config: manifest}}},
	}
	_, err := e.repair(t, spec)
	require.NoError(t, err)
	require.NoError(t, e.Verify(ctx, app, imagestore.Identity{Config: manifest}, ""))
}

func first(archive []byte, _, _ image.Digest) []byte { return archive }
