package migration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// An artifact in the shell reference's layout, with image.img before the texts that
// describe it, written by the real mender-artifact, installs and updates. So does
// one from an engine that identifies images by their manifests.
func TestReferenceArtifactInstalls(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	for _, version := range []string{"1", "2"} {
		h, err := bed.Reference("shop", "shop-"+version, e2e.Compose(version), e2e.Web(t, version, ""), e2e.Stock(t))
		require.NoError(t, err)
		if version == "2" {
			byManifest(t, &h, e2e.Web(t, version, ""))
		}
		e2e.Mender(t, d, "install", e2e.Handmade(t, d, h))
		e2e.Says(t, w, "web "+version)
		e2e.Mender(t, d, "commit")
		d.MustRun(t, "mender-app", "verify", "shop")
		d.MustProvide(t, map[string]string{
			"artifact_name": "shop-" + version, "rootfs-image.shop.version": "shop-" + version,
		})
	}
}

// byManifest changes an image of a reference artifact to what the reference writes
// on an engine with containerd's image store: an OCI layout, and the digest of its
// manifest everywhere in place of the config's.
func byManifest(t *testing.T, h *bed.Handmade, i bed.Image) {
	t.Helper()
	bed.Require(t, "skopeo")
	_, config, err := bed.ReferenceImage(i)
	require.NoError(t, err)
	packed, layout := filepath.Join(t.TempDir(), "packed.tar"), filepath.Join(t.TempDir(), "layout.tar")
	require.NoError(t, bed.WriteArchive(packed, i))
	text, err := exec.Command("skopeo", "copy", "-q", "docker-archive:"+packed, "oci-archive:"+layout+":"+i.Ref).CombinedOutput()
	require.NoError(t, err, "%s", text)
	text, err = exec.Command("tar", "-xOf", layout, "index.json").Output()
	require.NoError(t, err)
	var index struct{ Manifests []struct{ Digest string } }
	require.NoError(t, json.Unmarshal(text, &index))
	require.Len(t, index.Manifests, 1)
	manifest := strings.TrimPrefix(index.Manifests[0].Digest, "sha256:")
	h.Metadata = strings.ReplaceAll(h.Metadata, config, manifest)
	for n := range h.Images {
		m := &h.Images[n]
		m.Name = strings.ReplaceAll(m.Name, config, manifest)
		switch {
		case m.Name == "images/"+manifest+"/image.img":
			m.Data, err = os.ReadFile(layout)
			require.NoError(t, err)
		case strings.Contains(m.Name, manifest):
			m.Data = bytes.ReplaceAll(m.Data, []byte(config), []byte(manifest))
		}
	}
}

// The reference's delta (xdelta3 of what `docker save` gives) and its deep
// delta (xdelta3 a layer) update an application.
func TestReferenceDeltasInstall(t *testing.T) {
	t.Parallel()
	bed.Require(t, "xdelta3")
	for _, deep := range []bool{false, true} {
		name := map[bool]string{false: "delta", true: "deep delta"}[deep]
		t.Run(name, func(t *testing.T) {
			d := e2e.Device(t)
			w := e2e.Watch(t, d)
			one, err := bed.Reference("shop", "shop-1", e2e.Compose("1"), e2e.Web(t, "1", ""), e2e.Stock(t))
			require.NoError(t, err)
			e2e.Mender(t, d, "install", e2e.Handmade(t, d, one))
			e2e.Mender(t, d, "commit")
			e2e.Says(t, w, "web 1")
			before := d.MustState(t)

			// The reference makes its delta from what an engine saves: use this
			// device's engine for both sides.
			saved := func(version, file string, here bool) {
				ref := "shop/web:" + version
				if !here {
					ref = "elsewhere/web:" + version
					loadPlain(t, d, e2e.Web(t, version, ""), ref)
					defer d.MustRun(t, "docker", "rmi", ref)
				}
				d.MustRun(t, "docker", "save", "-o", d.Share(file), ref)
			}
			// A deep delta of layers that an engine saves compressed cannot be
			// applied (archive.ErrRecompressed), and containerd saves them as they
			// came.
			saved("1", "old.tar", !deep)
			saved("2", "new.tar", false)
			content := e2e.XDelta(t, d.Share("old.tar"), d.Share("new.tar"))
			if deep {
				content = deepDelta(t, d.Share("old.tar"), d.Share("new.tar"))
			}

			two, err := bed.Reference("shop", "shop-2", e2e.Compose("2"), e2e.Web(t, "2", ""))
			require.NoError(t, err)
			old, _, err := bed.ReferenceImage(e2e.Web(t, "1", ""))
			require.NoError(t, err)
			img := bed.Find(two.Images, "/image.img")
			img.Data = content
			bed.Find(two.Images, "/url-current.txt").Data = []byte("shop/web:1\n")
			bed.Find(two.Images, "/sums-current.txt").Data = bed.Find(old, "/sums-new.txt").Data
			if deep {
				two.Images = append(two.Images, bed.Member{Name: path.Dir(img.Name) + "/deep_delta"})
			}
			e2e.Mender(t, d, "install", e2e.Handmade(t, d, two))
			e2e.Says(t, w, "web 2")
			e2e.Mender(t, d, "commit")
			require.Equal(t, before.Service("shop", "stock"), d.MustState(t).Service("shop", "stock"))
		})
	}
}

// loadPlain gives the device's engine an image whose layers are not compressed,
// as an OCI layout, too: out of a docker-archive containerd's store compresses
// them itself.
func loadPlain(t *testing.T, d *bed.Device, i bed.Image, ref string) {
	t.Helper()
	built, err := i.Build()
	require.NoError(t, err)
	config, err := built.RawConfigFile()
	require.NoError(t, err)
	from, err := built.Layers()
	require.NoError(t, err)
	var layers []image.Layer
	for _, l := range from {
		r, err := l.Uncompressed()
		require.NoError(t, err)
		size, err := io.Copy(io.Discard, r)
		require.NoError(t, err)
		layers = append(layers, image.Layer{Size: size, Open: l.Uncompressed})
	}
	img, err := image.New(config, layers)
	require.NoError(t, err)
	f, err := os.Create(d.Share("plain.tar"))
	require.NoError(t, err)
	defer os.Remove(f.Name())
	require.NoError(t, image.WriteArchive(f, image.ArchiveSpec{Image: img, RepoTags: []string{ref}}))
	require.NoError(t, f.Close())
	d.MustRun(t, "docker", "load", "-q", "-i", f.Name())
}

// deepDelta packs what an engine saves as the reference does: each layer is a delta
// against the layer of the old image with the same index. In a classic docker-
// archive, an unchanged layer is only its checksum.
func deepDelta(t *testing.T, old, new string) []byte {
	t.Helper()
	oldDir, newDir := untar(t, old), untar(t, new)
	oldLayers, newLayers := layerFiles(t, oldDir), layerFiles(t, newDir)
	require.Len(t, newLayers, len(oldLayers))
	for i := range newLayers {
		from, to := filepath.Join(oldDir, oldLayers[i]), filepath.Join(newDir, newLayers[i])
		if strings.HasPrefix(newLayers[i], "blobs/") {
			require.NoError(t, os.WriteFile(to+".vcdiff", e2e.XDelta(t, from, to), 0o644))
			write(t, to+".source", oldLayers[i])
			require.NoError(t, os.Remove(to))
			continue
		}
		if sum(t, from) == sum(t, to) {
			write(t, to+".sha256sum", sum(t, to))
		} else {
			require.NoError(t, os.WriteFile(to+".vcdiff", e2e.XDelta(t, from, to), 0o644))
			write(t, to+".current.sha256sum", sum(t, from))
			write(t, to+".new.sha256sum", sum(t, to))
		}
		require.NoError(t, os.Remove(to))
	}
	out := filepath.Join(t.TempDir(), "image.img")
	text, err := exec.Command("tar", "-cf", out, "-C", newDir, ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	return data
}

func untar(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := exec.Command("tar", "-xf", file, "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return dir
}

func layerFiles(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	require.NoError(t, err)
	var manifest []struct{ Layers []string }
	require.NoError(t, json.Unmarshal(text, &manifest))
	require.Len(t, manifest, 1)
	return manifest[0].Layers
}

func sum(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.Command("sha256sum", file).Output()
	require.NoError(t, err)
	return string(out[:64])
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o644))
}

// A full artifact of app-gen has what the shell reference reads: its files, its
// metadata, and images that `docker load` accepts.
// metadata, and images that `docker load` takes.
func TestFullArtifactServesTheReference(t *testing.T) {
	d := e2e.Device(t)
	// One of its images has two names.
	file := e2e.Release(t, d, "1", "", e2e.Archive(t, e2e.Web(t, "1", ""))+"=shop/worker:1", "--for", "shell-module")
	text, err := exec.Command("mender-artifact", "validate", file).CombinedOutput()
	require.NoError(t, err, "%s", text)

	parts := open(t, file)
	metadata := struct {
		Version, ApplicationName, Orchestrator, Platform string
		Images                                           []string
	}{}
	raw := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(parts["headers/0000/meta-data"], &raw))
	for key, into := range map[string]any{
		"version": &metadata.Version, "application_name": &metadata.ApplicationName,
		"orchestrator": &metadata.Orchestrator, "platform": &metadata.Platform, "images": &metadata.Images,
	} {
		require.Contains(t, raw, key)
		require.NoError(t, json.Unmarshal(raw[key], into))
	}
	require.Equal(t, "1.0", metadata.Version)
	require.Equal(t, "shop", metadata.ApplicationName)
	require.Equal(t, "docker-compose", metadata.Orchestrator)
	require.Equal(t, bed.Platform(), metadata.Platform)
	require.Len(t, metadata.Images, 2)

	require.Contains(t, gunzip(t, parts["manifests.tar.gz"]), "manifests/docker-compose.yml")
	images := gunzip(t, parts["images.tar.gz"])
	for _, digest := range metadata.Images {
		dir := "images/" + digest + "/"
		for _, name := range []string{"url-new.txt", "url-current.txt", "sums-new.txt", "sums-current.txt", "image.img"} {
			require.Contains(t, images, dir+name)
		}
		// The reference tells a full image from a delta by its equal urls.
		require.Equal(t, images[dir+"url-new.txt"], images[dir+"url-current.txt"])
		require.Equal(t, digest, strings.TrimSpace(string(images[dir+"sums-new.txt"])))
		require.NotContains(t, images, dir+"deep_delta")

		require.NoError(t, os.WriteFile(d.Share("image.img"), images[dir+"image.img"], 0o644))
		d.MustRun(t, "docker", "load", "-i", d.Share("image.img"))
		url := strings.TrimSpace(string(images[dir+"url-new.txt"]))
		require.Equal(t, digest, config(t, d, url))
	}
	id := func(url string) string { return d.MustRun(t, "docker", "image", "inspect", "-f", "{{.Id}}", url) }
	require.Equal(t, id("shop/worker:1"), id("shop/web:1"))
}

// config is the digest of an image's config in hex. Not every engine uses it as the
// image's ID, but manifest.json of a saved image has it.
func config(t *testing.T, d *bed.Device, ref string) string {
	t.Helper()
	file := d.Share("saved.tar")
	defer os.Remove(file)
	d.MustRun(t, "docker", "save", "-o", file, ref)
	text, err := exec.Command("tar", "-xOf", file, "manifest.json").Output()
	require.NoError(t, err)
	var manifest []struct{ Config string }
	require.NoError(t, json.Unmarshal(text, &manifest))
	require.Len(t, manifest, 1)
	return strings.TrimSuffix(path.Base(manifest[0].Config), ".json")
}

// open unpacks a Mender Artifact whose payloads are not compressed again: the
// header's and the payload's files by name.
func open(t *testing.T, file string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	found := map[string][]byte{}
	for name, data := range members(t, bytes.NewReader(data)) {
		for _, nested := range []string{"header.tar", "data/0000.tar"} {
			if name == nested {
				for n, d := range members(t, bytes.NewReader(data)) {
					found[n] = d
				}
			}
			if name == nested+".gz" {
				for n, d := range gunzip(t, data) {
					found[n] = d
				}
			}
		}
	}
	return found
}

func gunzip(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	return members(t, r)
}

func members(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		data, err := io.ReadAll(tr)
		require.NoError(t, err)
		found[path.Clean(h.Name)] = data
	}
}
