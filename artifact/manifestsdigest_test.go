package artifact

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

// readDigest reads a payload and returns the digest of its manifests.
func readDigest(t *testing.T, payload []byte) digest.Digest {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	d, err := ReadManifests(bytes.NewReader(payload), root, ManifestLimits{})
	require.NoError(t, err)
	return d
}

// The digest is the same for the writer and the reader, and however the payload
// is packed.
func TestManifestsDigest(t *testing.T) {
	dir := someTree(t)
	var b bytes.Buffer
	written, err := WriteManifests(&b, os.DirFS(dir))
	require.NoError(t, err)
	require.True(t, written.Digest.Valid())
	require.Equal(t, written.Digest, readDigest(t, b.Bytes()))

	rig.Need(t, "tar")
	top := t.TempDir()
	rig.Run(t, "cp", "-a", dir, filepath.Join(top, "manifests"))
	rig.Run(t, "tar", "-C", top, "-cf", filepath.Join(top, "plain.tar"), "manifests")
	plain, err := os.ReadFile(filepath.Join(top, "plain.tar"))
	require.NoError(t, err)
	require.Equal(t, written.Digest, readDigest(t, plain))
}

// What the digest covers: names, modes, contents, and where links lead. The sum
// was made from the text in FORMAT.md by another program.
func TestManifestsDigestCovers(t *testing.T) {
	tree := func(change func(fstest.MapFS)) digest.Digest {
		m := fstest.MapFS{
			"d":     {Mode: fs.ModeDir | 0o750},
			"d/run": {Mode: 0o755, Data: []byte("#!/bin/sh\n")},
			"l":     {Mode: fs.ModeSymlink | 0o777, Data: []byte("d/run")},
		}
		change(m)
		written, err := WriteManifests(&bytes.Buffer{}, m)
		require.NoError(t, err)
		return written.Digest
	}
	same := digest.Digest("sha256:5fe403c2a1491b18d6f627e7fe33199fb8dc1435a72a65b9e2914b1df2e1df3a")
	require.Equal(t, same, tree(func(fstest.MapFS) {}))
	require.Equal(t, same, tree(func(m fstest.MapFS) { m["d/run"].Mode = 0o777 }), "what nobody gets unpacked")
	for name, change := range map[string]func(fstest.MapFS){
		"a file's content":   func(m fstest.MapFS) { m["d/run"].Data = []byte("#!/bin/no\n") },
		"a file's mode":      func(m fstest.MapFS) { m["d/run"].Mode = 0o644 },
		"a file's name":      func(m fstest.MapFS) { m["d/ran"], m["l"].Data = m["d/run"], []byte("d/ran"); delete(m, "d/run") },
		"a file more":        func(m fstest.MapFS) { m["d/more"] = &fstest.MapFile{Mode: 0o644} },
		"a directory more":   func(m fstest.MapFS) { m["e"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755} },
		"a directory's mode": func(m fstest.MapFS) { m["d"].Mode = fs.ModeDir | 0o755 },
		"a link's target":    func(m fstest.MapFS) { m["l"].Data = []byte("./d/run") },
		"a link less":        func(m fstest.MapFS) { delete(m, "l") },
	} {
		require.NotEqual(t, same, tree(change), name)
	}
	// Where a payload has no entry for a directory, its mode is 0755.
	payload := func(entries ...rig.Entry) []byte { return rig.Tar(t, entries...) }
	file := rig.Entry{Name: "manifests/x/y", Body: "z"}
	require.Equal(t, readDigest(t, payload(rig.Entry{Name: "manifests/x/", Type: tar.TypeDir, Mode: 0o755}, file)), readDigest(t, payload(file)))
}
