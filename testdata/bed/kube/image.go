package kube

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

// Image is a container image of the node's probe (testdata/k8snode/probe) in the
// format of docker save.
type Image struct {
	Archive []byte
	Config  digest.Digest   // digest of its configuration
	DiffIDs []digest.Digest // of its two layers: the probe, and the files
}

// Image makes an image that is called ref in its archive. Without files, the second
// layer has the environment as a file, so that another environment gives another
// layer.
func (n *Node) Image(t testing.TB, ref string, files map[string][]byte, env ...string) Image {
	t.Helper()
	probe, err := os.ReadFile(filepath.Join(n.Dir, "bin/probe"))
	if err != nil {
		t.Fatal(err)
	}
	if files == nil {
		files = map[string][]byte{"etc/env": fmt.Appendf(nil, "%q", env)}
	}
	var img Image
	members := map[string][]byte{}
	var names []string
	for _, l := range [][]byte{pack(t, map[string][]byte{"probe": probe}), pack(t, files)} {
		d := digest.Of(l)
		img.DiffIDs, names = append(img.DiffIDs, d), append(names, d.Hex()+"/layer.tar")
		members[d.Hex()+"/layer.tar"] = l
	}
	config := encode(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/probe"}, "Env": env},
		"rootfs": map[string]any{"type": "layers", "diff_ids": img.DiffIDs},
	})
	img.Config = digest.Of(config)
	members[img.Config.Hex()+".json"] = config
	members["manifest.json"] = encode(t, []any{map[string]any{"Config": img.Config.Hex() + ".json", "RepoTags": []string{ref}, "Layers": names}})
	img.Archive = pack(t, members)
	return img
}

// File writes the archive to a temporary file of the test.
func (i Image) File(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, i.Archive, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func encode(t testing.TB, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func pack(t testing.TB, files map[string][]byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name])), Typeflag: tar.TypeReg, ModTime: time.Unix(1, 0)})
		if err == nil {
			_, err = w.Write(files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Blob is the file in which containerd keeps a blob.
func (n *Node) Blob(d digest.Digest) string {
	return filepath.Join(n.Dir, "state/containerd/io.containerd.content.v1.content/blobs/sha256", d.Hex())
}

// Unpacked returns the directory into which containerd unpacked the uppermost of the
// layers. All of them must be layers of an image in the store.
func (n *Node) Unpacked(t testing.TB, diffIDs []digest.Digest) string {
	t.Helper()
	chains := image.ChainIDs(diffIDs)
	chain := chains[len(chains)-1].String()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// containerd may delete a view at any time if no lease holds it.
		key := fmt.Sprintf("view-%d", time.Now().UnixNano())
		n.Ctr("snapshots", "view", key, chain)
		_, rest, ok := strings.Cut(n.Ctr("snapshots", "mounts", "/mnt", key), "lowerdir=")
		n.Ctr("snapshots", "rm", key)
		if dir, _, _ := strings.Cut(rest, ":"); ok {
			return dir
		}
	}
	t.Fatalf("no view of %s", chain)
	return ""
}
