package sbom

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

type member struct {
	name, content string
	kind          byte
	mode          int64
}

// imageOf makes an image of layers that lie in files, as app-gen keeps them.
func imageOf(t testing.TB, layers ...[]member) *image.Image {
	t.Helper()
	img := &image.Image{}
	for i, list := range layers {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, m := range list {
			h := &tar.Header{Name: m.name, Mode: m.mode, Typeflag: m.kind}
			if m.kind == 0 {
				h.Typeflag, h.Size = tar.TypeReg, int64(len(m.content))
			} else {
				h.Linkname = m.content
			}
			if h.Mode == 0 {
				h.Mode = 0o644
			}
			require.NoError(t, w.WriteHeader(h))
			if m.kind == 0 {
				_, err := io.WriteString(w, m.content)
				require.NoError(t, err)
			}
		}
		require.NoError(t, w.Close())
		path := filepath.Join(t.TempDir(), "layer")
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
		img.Layers = append(img.Layers, image.Layer{DiffID: digest.Of(b.Bytes()), Size: int64(i), Open: func() (io.ReadCloser, error) { return os.Open(path) }})
	}
	return img
}

// The tree is what an engine shows of the layers.
func TestTree(t *testing.T) {
	dir := func(name string) member { return member{name: name, kind: tar.TypeDir, mode: 0o755} }
	file := func(name, content string) member { return member{name: name, content: content} }
	tree, err := ReadTree(t.Context(), imageOf(t,
		[]member{
			dir("a/"), file("a/kept", "1"), file("a/removed", "1"), file("a/changed", "1"), file("./a/was-dir/x", "1"),
			dir("opaque/"), file("opaque/old", "1"), file("opaque/sub/old", "1"), file("gone/deep/x", "1"), file("file-then-dir", "1"),
			{name: "hard", content: "a/kept", kind: tar.TypeLink}, {name: "soft", content: "a/kept", kind: tar.TypeSymlink},
		},
		[]member{
			file("a/.wh.removed", ""), file("a/changed", "2"), file("a/was-dir", "2"), file(".wh.gone", ""),
			file("opaque/.wh..wh..opq", ""), file("opaque/new", "2"), dir("file-then-dir/"), file("file-then-dir/y", "2"),
		},
		[]member{file("a/.wh.changed", ""), file("a/changed2", "3"), file("gone/again", "3")},
	))
	require.NoError(t, err)
	require.Equal(t, []string{"a/changed2", "a/kept", "a/was-dir", "file-then-dir/y", "gone/again", "hard", "opaque/new", "soft"}, tree.Paths())
	b, err := tree.File("hard").content(10)
	require.NoError(t, err)
	require.Equal(t, "1", string(b))
	require.Equal(t, "a/kept", tree.File("soft").Link)
	_, err = tree.File("hard").content(0)
	require.Error(t, err, "bounded")
	require.True(t, tree.File("a/kept").Same(&File{Path: "a/other", Type: tar.TypeReg, Mode: 0o644, Size: 1, Sum: tree.File("hard").Sum}))
	require.False(t, tree.File("a/kept").Same(tree.File("a/was-dir")))
}

const dpkgStatus = `Package: libc6
Status: install ok installed
Priority: optional
Architecture: armhf
Multi-Arch: same
Source: glibc
Version: 2.36-9+deb12u10
Description: GNU C Library: Shared libraries
 Contains the standard libraries.
 Version: 0.0-not-this-one

Package: old-config
Status: deinstall ok config-files
Architecture: all
Version: 1.0

Package: openssl
Status: install ok installed
Architecture: armhf
Version: 1:3.0.15-1~deb12u1
`

const apkInstalled = `C:Q1qKcZ+j23xssAXmgQhkOO8dHnbWw=
P:musl
V:1.2.5-r8
A:armv7
S:383152
L:MIT
T:the musl c library (libc) implementation
F:lib
R:ld-musl-armhf.so.1

C:Q1NN3sp0yr99btRysqty3nQUrWHaY=
P:ssl_client
V:1.37.0-r9
A:armv7
L:GPL-2.0-only
`

func TestPackages(t *testing.T) {
	tests := map[string]struct {
		files []member
		want  []string // package URLs
		found string
	}{
		"Debian": {
			[]member{
				{name: "etc/os-release", content: "../usr/lib/os-release", kind: tar.TypeSymlink},
				{name: "usr/lib/os-release", content: "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\nVERSION_ID=\"12\"\n"},
				{name: "var/lib/dpkg/status", content: dpkgStatus},
			},
			[]string{
				"pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=armhf&distro=debian-12",
				"pkg:deb/debian/openssl@1:3.0.15-1~deb12u1?arch=armhf&distro=debian-12",
			}, "var/lib/dpkg/status",
		},
		"distroless": {
			[]member{
				{name: "etc/os-release", content: "ID=debian\nVERSION_ID=12\n"},
				{name: "var/lib/dpkg/status.d/tzdata", content: "Package: tzdata\nVersion: 2024a-0+deb12u1\nArchitecture: all\n"},
				{name: "var/lib/dpkg/status.d/tzdata.md5sums", content: "d41d8cd98f00b204e9800998ecf8427e  usr/share/x\n"},
			},
			[]string{"pkg:deb/debian/tzdata@2024a-0%2Bdeb12u1?arch=all&distro=debian-12"}, "var/lib/dpkg/status.d/tzdata",
		},
		"Alpine": {
			[]member{
				{name: "etc/os-release", content: "ID=alpine\nVERSION_ID=3.22.1\n"},
				{name: "lib/apk/db/installed", content: apkInstalled},
			},
			[]string{
				"pkg:apk/alpine/musl@1.2.5-r8?arch=armv7&distro=alpine-3.22.1",
				"pkg:apk/alpine/ssl_client@1.37.0-r9?arch=armv7&distro=alpine-3.22.1",
			}, "lib/apk/db/installed",
		},
		"Python": {
			[]member{
				{name: "usr/lib/python3/dist-packages/ruamel.yaml-0.17.21.dist-info/METADATA", content: "Metadata-Version: 2.1\nName: ruamel.yaml\nVersion: 0.17.21\nLicense: MIT\n\nName: not this\n"},
				{name: "usr/lib/python3/dist-packages/six-1.16.0.egg-info/PKG-INFO", content: "Name: six\r\nVersion: 1.16.0\r\n\r\ntext"},
				{name: "app/METADATA", content: "Name: no package\nVersion: 1\n"},
			},
			[]string{"pkg:pypi/ruamel-yaml@0.17.21", "pkg:pypi/six@1.16.0"}, "",
		},
		"npm": {
			[]member{
				{name: "app/node_modules/left-pad/package.json", content: `{"name":"left-pad","version":"1.3.0","license":"WTFPL"}`},
				{name: "app/node_modules/@scope/x/package.json", content: `{"name":"@scope/x","version":"2.0.0","license":{"type":"MIT"}}`},
				{name: "app/node_modules/@scope/x/node_modules/left-pad/package.json", content: `{"name":"left-pad","version":"1.3.0"}`},
				{name: "app/node_modules/left-pad/lib/package.json", content: `{"name":"inner","version":"9"}`},
				{name: "app/node_modules/nothing/package.json", content: `{"type":"module"}`},
				{name: "app/package.json", content: `{"name":"app","version":"1"}`},
			},
			[]string{"pkg:npm/%40scope/x@2.0.0", "pkg:npm/left-pad@1.3.0"}, "",
		},
		"nothing": {[]member{{name: "bin/sh", content: "\x7fELF" + string(make([]byte, 4000))}}, nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tree, err := ReadTree(t.Context(), imageOf(t, test.files))
			require.NoError(t, err)
			list, warnings, err := tree.Packages(t.Context())
			require.NoError(t, err)
			require.Empty(t, warnings)
			var urls []string
			for _, p := range list {
				urls = append(urls, p.URL)
				require.NotEmpty(t, p.Found)
				require.NotEmpty(t, p.Version)
				if test.found != "" {
					require.Equal(t, test.found, p.Found)
				}
			}
			require.Equal(t, test.want, urls)
		})
	}
	t.Run("Go", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "app")
		out, err := exec.Command("go", "build", "-o", program, "github.com/mender-app/mender-app/cmd/app").CombinedOutput()
		require.NoError(t, err, "%s", out)
		content, err := os.ReadFile(program)
		require.NoError(t, err)
		tree, err := ReadTree(t.Context(), imageOf(t, []member{{name: "app", content: string(content)}}))
		require.NoError(t, err)
		list, _, err := tree.Packages(t.Context())
		require.NoError(t, err)
		have := map[string]string{}
		for _, p := range list {
			require.Equal(t, "golang", p.Type)
			require.Equal(t, "app", p.Found)
			have[p.Name] = p.Version
		}
		require.Contains(t, have, "stdlib")
		require.Regexp(t, `^v1\.`, have["github.com/klauspost/compress"])
	})
	t.Run("what is not read is said", func(t *testing.T) {
		tree, err := ReadTree(t.Context(), imageOf(t, []member{
			{name: "var/lib/rpm/rpmdb.sqlite", content: "SQLite"},
			{name: "app/node_modules/bad/package.json", content: "{"},
		}))
		require.NoError(t, err)
		list, warnings, err := tree.Packages(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
		require.Len(t, warnings, 2)
		require.Contains(t, warnings[1], "the packages of rpm are not listed")
	})
}

func TestParseAttestation(t *testing.T) {
	list, err := ParseAttestation([]byte(`{"_type":"https://in-toto.io/Statement/v0.1","predicateType":"https://spdx.dev/Document","predicate":{"packages":[
		{"name":"sbom","SPDXID":"SPDXRef-DocumentRoot"},
		{"name":"musl","versionInfo":"1.2.5-r8","licenseDeclared":"MIT","externalRefs":[
			{"referenceType":"cpe23Type","referenceLocator":"cpe:2.3:a:musl"},
			{"referenceType":"purl","referenceLocator":"pkg:apk/alpine/musl@1.2.5-r8?arch=x86_64"}]},
		{"name":"left-pad","versionInfo":"1.3.0","licenseDeclared":"NOASSERTION","externalRefs":[{"referenceType":"purl","referenceLocator":"pkg:npm/left-pad@1.3.0"}]}]}}`))
	require.NoError(t, err)
	require.Equal(t, []Package{
		{Type: "apk", Name: "musl", Version: "1.2.5-r8", Arch: "x86_64", License: "MIT", URL: "pkg:apk/alpine/musl@1.2.5-r8?arch=x86_64", Found: "attestation"},
		{Type: "npm", Name: "left-pad", Version: "1.3.0", URL: "pkg:npm/left-pad@1.3.0", Found: "attestation"},
	}, list)
	for _, bad := range []string{"", "[]", `{"predicateType":"https://slsa.dev/provenance/v1"}`} {
		_, err := ParseAttestation([]byte(bad))
		require.Error(t, err, bad)
	}
}
