package image

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

// FuzzArchive reads what may be an image archive both ways.
func FuzzArchive(f *testing.F) {
	s := makeSample(f, amd64, "base", "app")
	f.Add(rig.Tar(f, s.classic(f, "web:1")...))
	f.Add(rig.Tar(f, oci(f, true, rig.Gzip, s)...))
	f.Add(rig.Tar(f, oci(f, false, zst, s)...))
	f.Add(write(f, ArchiveSpec{Image: s.image(f), RepoTags: []string{"web:1"}}))
	f.Add(zst(f, rig.Tar(f, s.classic(f, "web:1")...)))
	// Without digests in the names there is more that can be changed.
	f.Add(rig.Tar(f, file("c", s.config), file("l0", s.layers[0]), file("l1", s.layers[1]),
		file("manifest.json", encode([]dockerImage{{Config: "c", Layers: []string{"l0", "l1"}}}))))
	limits := Limits{MaxBytes: 1 << 20, MaxLayer: 1 << 18, MaxMembers: 64, MaxJSON: 1 << 16}
	name := filepath.Join(f.TempDir(), "archive")
	f.Fuzz(func(t *testing.T, b []byte) {
		rig.FixChecksums(b)
		handed := make(map[string]Digest)
		imgs, err := ReadStream(bytes.NewReader(b), limits, Handler{Layer: func(m Member, r io.Reader) error {
			content, err := io.ReadAll(r)
			require.LessOrEqual(t, int64(len(content)), m.Size)
			if m.Compression == "" {
				handed[m.Name] = digest.Of(content)
			}
			return err
		}})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
		}
		for _, img := range imgs {
			require.Equal(t, digest.Of(img.Config), img.ConfigDigest)
			require.Equal(t, len(img.DiffIDs), len(img.Members))
			for i, member := range img.Members {
				if d, ok := handed[member]; ok {
					require.Equal(t, img.DiffIDs[i], d)
				}
			}
		}
		if len(b) > 4 && (b[0] == 0x1f || b[0] == 0x28) {
			return // OpenArchive unpacks as much as a build host has room for
		}
		require.NoError(t, os.WriteFile(name, b, 0o600))
		a, err := OpenArchive(name)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		defer a.Close()
		for _, img := range a.Images() {
			if Verify(img) != nil {
				continue
			}
			for i := range img.Layers {
				require.GreaterOrEqual(t, img.Layers[i].Size, int64(0))
			}
			var out bytes.Buffer
			require.NoError(t, WriteArchive(&out, ArchiveSpec{Image: img}))
		}
	})
}
