package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/gentest"
)

const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type object map[string]any

// oddLayout is an OCI layout that is put together by hand. The order of its blobs is that
// in which a registry takes them.
type oddLayout struct {
	t      *testing.T
	blobs  map[string][]byte // by digest
	kinds  map[string]string // media types of manifests and indexes
	order  []string
	index  []object
	config object // of the first image
	layers []object
	docker []byte        // manifest.json; nil: there is none
	want   digest.Digest // config of the image that is to be found
	lacks  bool          // as it is stored, it lacks the platform
}

func newOddLayout(t *testing.T) *oddLayout {
	return &oddLayout{t: t, blobs: map[string][]byte{}, kinds: map[string]string{}}
}

// add adds a blob and returns its descriptor.
func (l *oddLayout) add(b []byte, media string) object {
	d := digest.Of(b).String()
	if l.blobs[d] == nil {
		l.order = append(l.order, d)
	}
	l.blobs[d] = b
	if media == ociManifest || media == ociIndex {
		l.kinds[d] = media
	}
	return object{"mediaType": media, "digest": d, "size": len(b)}
}

func (l *oddLayout) json(v any, media string) object {
	b, err := json.Marshal(v)
	require.NoError(l.t, err)
	return l.add(b, media)
}

// image adds an image with one layer, whose blob pack makes of its tar. Its config lacks some
// keys. They are there in the config that is to be found.
func (l *oddLayout) image(arch string, pack func([]byte) []byte, lacks ...string) object {
	layer := oddTar(l.t, "file-of-"+arch)
	fields := object{"architecture": arch, "os": "linux", "rootfs": object{"type": "layers", "diff_ids": []string{digest.Of(layer).String()}}}
	whole, err := json.Marshal(fields)
	require.NoError(l.t, err)
	for _, key := range lacks {
		delete(fields, key)
	}
	config := l.json(fields, ociConfig)
	blob := l.add(pack(layer), ociLayer)
	if arch == "amd64" {
		l.want, l.config, l.layers, l.lacks = digest.Of(whole), config, []object{blob}, len(lacks) > 0
	}
	return l.json(object{"schemaVersion": 2, "mediaType": ociManifest, "config": config, "layers": []object{blob}}, ociManifest)
}

func (l *oddLayout) indexOf(list ...object) object {
	return l.json(object{"schemaVersion": 2, "mediaType": ociIndex, "manifests": list}, ociIndex)
}

func with(d object, more object) object {
	for k, v := range more {
		d[k] = v
	}
	return d
}

func platform(arch string) object {
	return object{"platform": object{"os": "linux", "architecture": arch}}
}

func oddTar(t *testing.T, name string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := gentest.Text(name, 5000)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatUSTAR}))
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// by makes a blob with a program that compresses standard input.
func by(t *testing.T, program string, args ...string) func([]byte) []byte {
	return func(b []byte) []byte {
		need(t, program)
		c := exec.Command(program, args...)
		c.Stdin = bytes.NewReader(b)
		out, err := c.Output()
		require.NoError(t, err)
		return out
	}
}

// oddities are what layouts and registries hold beside, around and in images. Each is read
// from every source, with the same result.
var oddities = []struct {
	name string
	make func(t *testing.T, l *oddLayout)
	err  string // that each source says; "" for none
	// index: the oddity lies in what docker-archives do not have.
	index bool
}{
	{name: "one image", make: func(t *testing.T, l *oddLayout) { l.index = []object{l.image("amd64", gzipped)} }},
	{name: "two platforms", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{with(l.image("arm64", gzipped), platform("arm64")), with(l.image("amd64", gzipped), platform("amd64"))}
	}},
	{name: "entries without a platform", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.image("arm64", gzipped), l.image("amd64", gzipped)}
	}},
	{name: "no platform, beside an image that has one", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.image("arm64", gzipped), l.image("amd64", gzipped, "os", "architecture")}
	}},
	{name: "platforms in the index alone", make: func(t *testing.T, l *oddLayout) {
		for _, arch := range []string{"arm64", "amd64"} {
			l.index = append(l.index, with(l.indexOf(l.image(arch, gzipped, "architecture")), platform(arch)))
		}
	}},
	{name: "an index for each platform", make: func(t *testing.T, l *oddLayout) {
		for _, arch := range []string{"arm64", "amd64"} {
			l.index = append(l.index, with(l.indexOf(with(l.image(arch, gzipped), platform(arch))), platform(arch)))
		}
	}},
	{name: "an index in an index in an index, without platforms", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.indexOf(l.indexOf(l.image("amd64", gzipped)), l.image("arm64", gzipped))}
	}},
	{name: "indexes without end", index: true, err: "indexes more than 4 deep", make: func(t *testing.T, l *oddLayout) {
		d := l.image("amd64", gzipped)
		for range 6 {
			d = l.indexOf(d)
		}
		l.index = []object{d}
	}},
	{name: "attestation of BuildKit", make: func(t *testing.T, l *oddLayout) {
		img := with(l.image("amd64", gzipped), platform("amd64"))
		l.index = []object{img, with(l.other(ociConfig, "application/vnd.in-toto+json"), object{
			"platform": object{"os": "unknown", "architecture": "unknown"}, "annotations": object{"vnd.docker.reference.type": "attestation-manifest"}})}
	}},
	{name: "signature of cosign", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.other(ociConfig, "application/vnd.dev.cosign.simplesigning.v1+json"), l.image("amd64", gzipped)}
	}},
	{name: "signature of notation", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.other("application/vnd.cncf.notary.signature", "application/jose+json"), l.image("amd64", gzipped)}
	}},
	{name: "bill of materials as a referrer", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.other("application/vnd.oci.empty.v1+json", "application/spdx+json"), l.image("amd64", gzipped)}
	}},
	{name: "bill of materials of cosign attach", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.other(ociConfig, "text/spdx+json"), l.image("amd64", gzipped)}
	}},
	{name: "zeros after gzip", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.image("amd64", func(b []byte) []byte { return append(gzipped(b), make([]byte, 1234)...) })}
	}},
	{name: "several members of gzip", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.image("amd64", func(b []byte) []byte { return append(gzipped(b[:700]), gzipped(b[700:])...) })}
	}},
	{name: "zstd", make: func(t *testing.T, l *oddLayout) { l.index = []object{l.image("amd64", by(t, "zstd", "-q", "-c"))} }},
	{name: "pzstd, whose first frame is skippable", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.image("amd64", func(b []byte) []byte {
			return append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}, by(t, "pzstd", "-q", "-c")(b)...)
		})}
	}},
	{name: "not compressed", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.image("amd64", func(b []byte) []byte { return b })}
	}},
	{name: "xz", err: "xz compression is not supported: use gzip or zstd", make: func(t *testing.T, l *oddLayout) {
		l.index = []object{l.image("amd64", by(t, "xz", "-c"))}
	}},
	{name: "sha512", index: true, err: "sha512", make: func(t *testing.T, l *oddLayout) {
		l.image("amd64", gzipped)
		b := oddTar(t, "x")
		layer := object{"mediaType": ociLayer, "size": len(b), "digest": fmt.Sprintf("sha512:%x", sha512.Sum512(b))}
		l.index = []object{l.json(object{"schemaVersion": 2, "mediaType": ociManifest, "config": l.config, "layers": []object{layer}}, ociManifest)}
	}},
}

// other adds a manifest that is not an image, as tools for signatures write them.
func (l *oddLayout) other(config, layer string) object {
	text := l.add([]byte(`{"critical":{}}`), layer)
	c := l.json(object{"architecture": "", "os": "", "config": object{}, "rootfs": object{"type": "layers", "diff_ids": []any{text["digest"]}}}, config)
	return l.json(object{"schemaVersion": 2, "mediaType": ociManifest, "config": c, "layers": []object{text}}, ociManifest)
}

// sources write a layout where app-gen reads it, and return its name there.
var sources = map[string]func(t *testing.T, l *oddLayout) string{
	"OCI directory": func(t *testing.T, l *oddLayout) string { return "oci:" + l.directory(t) + "=web:1" },
	"OCI directory with blobs elsewhere": func(t *testing.T, l *oddLayout) string {
		dir, elsewhere := l.directory(t), t.TempDir()
		blobs := filepath.Join(dir, "blobs/sha256")
		for d := range l.blobs {
			hex := strings.TrimPrefix(d, "sha256:")
			require.NoError(t, os.Rename(filepath.Join(blobs, hex), filepath.Join(elsewhere, hex)))
			require.NoError(t, os.Symlink(filepath.Join(elsewhere, hex), filepath.Join(blobs, hex)))
		}
		return "oci:" + dir + "=web:1"
	},
	"OCI tar":                func(t *testing.T, l *oddLayout) string { return "oci:" + l.tar(t, 1) + "=web:1" },
	"OCI tar, members twice": func(t *testing.T, l *oddLayout) string { return "oci:" + l.tar(t, 2) + "=web:1" },
	"OCI tar in gzip": func(t *testing.T, l *oddLayout) string {
		path := l.tar(t, 1)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(gzipped(b), make([]byte, 512)...), 0o600))
		return "oci:" + path + "=web:1"
	},
	"docker-archive": func(t *testing.T, l *oddLayout) string {
		file := func(d any) string { return "blobs/sha256/" + strings.TrimPrefix(d.(string), "sha256:") }
		b, err := json.Marshal([]object{{"Config": file(l.config["digest"]), "RepoTags": []string{"web:1"}, "Layers": []string{file(l.layers[0]["digest"])}}})
		require.NoError(t, err)
		l.docker = b
		return "docker-archive:" + l.tar(t, 1) + ":web:1"
	},
	"registry": func(t *testing.T, l *oddLayout) string {
		host := gentest.Registry(t, "", "")
		put := func(path, media string, b []byte) {
			r, err := http.NewRequest(http.MethodPut, "http://"+host+"/v2/odd/"+path, bytes.NewReader(b))
			require.NoError(t, err)
			r.Header.Set("Content-Type", media)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			answer.Body.Close()
			require.Less(t, answer.StatusCode, 300, path)
		}
		for _, d := range l.order {
			if kind := l.kinds[d]; kind != "" {
				put("manifests/"+d, kind, l.blobs[d])
				continue
			}
			answer, err := http.Post("http://"+host+"/v2/odd/blobs/uploads/?digest="+d, "application/octet-stream", bytes.NewReader(l.blobs[d]))
			require.NoError(t, err)
			answer.Body.Close()
			require.Less(t, answer.StatusCode, 300)
		}
		b, err := json.Marshal(object{"schemaVersion": 2, "mediaType": ociIndex, "manifests": l.index})
		require.NoError(t, err)
		put("manifests/1", ociIndex, b)
		return host + "/odd:1"
	},
}

func (l *oddLayout) files() map[string][]byte {
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": l.index})
	require.NoError(l.t, err)
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": index}
	if l.docker != nil {
		files["manifest.json"] = l.docker
		delete(files, "index.json") // an archive of docker save before 25
	}
	for d, b := range l.blobs {
		files["blobs/sha256/"+strings.TrimPrefix(d, "sha256:")] = b
	}
	return files
}

func (l *oddLayout) directory(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "blobs/sha256"), fs.ModePerm))
	for name, b := range l.files() {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	return dir
}

func (l *oddLayout) tar(t *testing.T, times int) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for range times {
		for name, text := range l.files() {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatUSTAR}))
			_, err := w.Write(text)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "image,1.tar")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// Every source reads every oddity: the image for the platform is found, and its content is
// whole.
func TestOddities(t *testing.T) {
	for _, odd := range oddities {
		for name, write := range sources {
			t.Run(odd.name+"/"+name, func(t *testing.T) {
				if odd.index && name == "docker-archive" {
					return // it has no index
				}
				l := newOddLayout(t)
				odd.make(t, l)
				f, err := open(t, opener(t, "linux/amd64"), write(t, l))
				if err == nil {
					err = image.Verify(f.Image)
				}
				if odd.err != "" {
					require.ErrorContains(t, err, odd.err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, l.want, f.Image.ConfigDigest)
				require.Equal(t, l.lacks, len(f.Warnings) == 1, f.Warnings)
				content(t, f)
			})
		}
	}
}

// A member that occurs twice with different content is refused.
func TestMembersThatDiffer(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, text := range []string{"[]", "{}"} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "manifest.json", Mode: 0o644, Size: int64(len(text)), Format: tar.FormatUSTAR}))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "two.tar")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	_, err := open(t, opener(t, "linux/amd64"), "docker-archive:"+path+"=web:1")
	require.ErrorContains(t, err, "it occurs twice, with different content")
}

// What the tools of others write is read the same from each place that they write it to.
func TestToolsOfOthers(t *testing.T) {
	for _, tool := range []string{"umoci", "skopeo"} {
		need(t, tool)
	}
	dir := t.TempDir()
	run := func(program string, args ...string) {
		c := exec.Command(program, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s %v: %s", program, args, out)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "files/app"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "files/app/web"), []byte(gentest.Text("web", 1<<16)), 0o755))
	run("umoci", "init", "--layout", "l")
	run("umoci", "new", "--image", "l:1")
	run("umoci", "insert", "--image", "l:1", "files", "/")
	first, err := open(t, opener(t, ""), "oci:"+dir+"/l:1=web:1")
	require.NoError(t, err)
	content(t, first)
	host := gentest.Registry(t, "", "")
	for _, to := range []string{"oci:" + dir + "/zstd:1", "docker-archive:" + dir + "/a.tar:web:1", "oci-archive:" + dir + "/o.tar:1", "docker://" + host + "/web:1"} {
		args := []string{"--insecure-policy", "copy", "-q", "--dest-tls-verify=false"}
		if strings.Contains(to, "zstd") {
			args = append(args, "--dest-compress-format", "zstd", "--dest-compress")
		}
		run("skopeo", append(args, "oci:l:1", to)...)
		f, err := open(t, opener(t, ""), strings.TrimPrefix(to, "docker://")+"=web:1")
		require.NoError(t, err, to)
		require.Equal(t, first.Image.DiffIDs, f.Image.DiffIDs, to)
		content(t, f)
	}
}
