package image

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/rig"
)

var (
	amd64 = Platform{OS: "linux", Arch: "amd64"}
	armV7 = Platform{OS: "linux", Arch: "arm", Variant: "v7"}
	armV6 = Platform{OS: "linux", Arch: "arm", Variant: "v6"}
	arm64 = Platform{OS: "linux", Arch: "arm64"}
)

func readLayer(t testing.TB, l *Layer) []byte {
	t.Helper()
	r, err := l.Verified()
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return b
}

// TestOpenArchive reads the same image from every kind of archive.
func TestOpenArchive(t *testing.T) {
	s := makeSample(t, amd64, "base", "app", "base") // a layer that occurs twice, as a link
	other := makeSample(t, armV7, "base", "arm")
	paths := map[string]string{
		"classic":             put(t, rig.Tar(t, s.classic(t, "web:1")...)),
		"classic, gzip":       put(t, rig.Gzip(t, rig.Tar(t, s.classic(t, "web:1")...))),
		"classic, zstd":       put(t, zst(t, rig.Tar(t, s.classic(t, "web:1")...))),
		"classic, directory":  putDir(t, s.classic(t, "web:1")),
		"oci":                 put(t, rig.Tar(t, oci(t, false, plain, s)...)),
		"oci, gzip layers":    put(t, rig.Tar(t, oci(t, false, rig.Gzip, s)...)),
		"oci, zstd layers":    put(t, rig.Tar(t, oci(t, false, zst, s)...)),
		"oci, directory":      putDir(t, oci(t, false, rig.Gzip, s)),
		"oci, two platforms":  put(t, rig.Tar(t, oci(t, false, rig.Gzip, other, s)...)),
		"hybrid":              put(t, rig.Tar(t, oci(t, true, plain, s)...)),
		"hybrid, gzip layers": put(t, rig.Tar(t, oci(t, true, rig.Gzip, s)...)),
	}
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			a, err := OpenArchive(path)
			require.NoError(t, err)
			defer a.Close()
			img, err := a.Select(amd64)
			require.NoError(t, err)
			require.Equal(t, digest.Of(s.config), img.ConfigDigest)
			require.Equal(t, s.config, img.Config)
			require.Equal(t, amd64, img.Platform)
			require.True(t, img.tagged("web:1"), img.Tags)
			require.Len(t, img.Layers, len(s.layers))
			require.NoError(t, Verify(img))
			for i, l := range s.layers {
				require.Equal(t, l, readLayer(t, &img.Layers[i]))
				require.Equal(t, int64(len(l)), img.Layers[i].Size)
			}
			_, err = a.SelectTag("docker.io/library/web:1", amd64)
			require.NoError(t, err)
			_, err = a.SelectTag("web:2", amd64)
			require.ErrorContains(t, err, `no image named "web:2"`)
		})
	}
}

func TestSelectPlatform(t *testing.T) {
	v6, v7 := makeSample(t, armV6, "six"), makeSample(t, armV7, "seven")
	a64 := makeSample(t, Platform{OS: "linux", Arch: "arm64", Variant: "v8"}, "eight")
	open := func(samples ...sample) *Archive {
		a, err := OpenArchive(put(t, rig.Tar(t, oci(t, false, rig.Gzip, samples...)...)))
		require.NoError(t, err)
		t.Cleanup(func() { a.Close() })
		return a
	}
	img, err := open(v6, v7, a64).Select(armV7)
	require.NoError(t, err)
	require.Equal(t, armV7, img.Platform)
	img, err = open(v6, a64).Select(armV7)
	require.NoError(t, err)
	require.Equal(t, armV6, img.Platform)
	require.True(t, armV7.Match(img.Platform).Fallback())
	img, err = open(v6, a64).Select(arm64)
	require.NoError(t, err)
	require.Equal(t, arm64, img.Platform)

	_, err = open(v7, a64).Select(armV6)
	var perr *PlatformError
	require.ErrorAs(t, err, &perr)
	require.EqualError(t, err, "no image for platform linux/arm/v6; there is linux/arm/v7, linux/arm64")
	_, err = open(v7, a64).Select(Platform{})
	require.ErrorContains(t, err, "several images")
	_, err = open(a64).Select(Platform{})
	require.NoError(t, err)
}

// TestOpenArchiveHostile gives each malformed archive and what is said of it.
func TestOpenArchiveHostile(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	cfg := digest.Of(s.config).Hex() + ".json"
	manifest := func(d dockerImage) rig.Entry { return file("manifest.json", encode([]dockerImage{d})) }
	big := bytes.Repeat([]byte(" "), MaxConfig+1)
	for _, c := range []struct {
		name    string
		entries []rig.Entry
		is      error
		says    string
	}{
		{"nothing in it", []rig.Entry{file("x", nil)}, ErrFormat, "neither manifest.json nor index.json"},
		{"twice", append(s.classic(t, "web:1"), file("./manifest.json", nil)), ErrFormat, "occurs twice"},
		{"dot-dot", []rig.Entry{file("a/../../b", nil)}, ErrFormat, ".. in its name"},
		{"absolute", []rig.Entry{file("/manifest.json", nil)}, ErrFormat, "absolute name"},
		{"no config", []rig.Entry{manifest(dockerImage{Config: cfg})}, ErrMissing, cfg},
		{"other config", []rig.Entry{manifest(dockerImage{Config: cfg}), file(cfg, []byte("{}"))}, ErrMismatch, "it is sha256:"},
		{"config not JSON", []rig.Entry{manifest(dockerImage{Config: "c"}), file("c", []byte("{"))}, ErrFormat, "image config"},
		{"no platform", []rig.Entry{manifest(dockerImage{Config: "c"}), file("c", []byte("{}"))}, ErrFormat, "no os or architecture"},
		{"huge config", []rig.Entry{manifest(dockerImage{Config: "c"}), file("c", big)}, ErrTooLarge, "bytes"},
		{"huge manifest", []rig.Entry{file("manifest.json", big)}, ErrTooLarge, "manifest.json"},
		{"manifest not JSON", []rig.Entry{file("manifest.json", []byte("[1]"))}, ErrFormat, "manifest.json"},
		{"index not JSON", []rig.Entry{file("index.json", []byte("[1]"))}, ErrFormat, "index.json"},
		{"layers fewer than diffIDs", []rig.Entry{manifest(dockerImage{Config: cfg, Layers: []string{"l"}}), file(cfg, s.config)}, ErrFormat, "1 layers for a config that has 2"},
		{"stored under another name", []rig.Entry{
			manifest(dockerImage{Config: cfg, Layers: []string{blobDir + digest.Of(s.config).Hex(), "l"}}),
			file(cfg, s.config), file(blobDir+digest.Of(s.config).Hex(), s.layers[0]),
		}, ErrMismatch, "stored as"},
		{"xz layer", []rig.Entry{
			manifest(dockerImage{Config: cfg, Layers: []string{"l", "l"}}), file(cfg, s.config), file("l", []byte("\xfd7zXZ\x00xxxx")),
		}, ErrFormat, "xz compression"},
		{"link loop", []rig.Entry{
			{Name: "manifest.json", Type: tar.TypeSymlink, Link: "a"}, {Name: "a", Type: tar.TypeSymlink, Link: "manifest.json"},
		}, ErrFormat, "neither"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenArchive(put(t, rig.Tar(t, c.entries...)))
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestVerifyFindsWrongLayer(t *testing.T) {
	s := makeSample(t, amd64, "base", "app")
	wrong := s
	wrong.layers = [][]byte{s.layers[0], rig.Tar(t, file("etc/app", []byte("apq")))}
	a, err := OpenArchive(put(t, rig.Tar(t, wrong.classic(t, "web:1")...)))
	require.NoError(t, err)
	defer a.Close()
	img, err := a.Select(amd64)
	require.NoError(t, err)
	require.ErrorIs(t, Verify(img), ErrMismatch)
	require.ErrorContains(t, Verify(img), img.DiffIDs[1].String())

	omitted := s.classic(t, "web:1")
	omitted = append(omitted[:3:3], omitted[4:]...) // the first layer.tar
	a2, err := OpenArchive(put(t, rig.Tar(t, omitted...)))
	require.NoError(t, err)
	defer a2.Close()
	img, err = a2.Select(amd64)
	require.NoError(t, err)
	require.ErrorIs(t, Verify(img), ErrMissing)
}

func TestParsePlatform(t *testing.T) {
	for in, want := range map[string]string{
		"linux/arm/v7": "linux/arm/v7", "linux/arm": "linux/arm/v7", "arm": "linux/arm/v7", "armhf": "linux/arm/v7",
		"arm32v7": "linux/arm/v7", "arm32v6": "linux/arm/v6", "arm32v5": "linux/arm/v5", "armel": "linux/arm/v6",
		"linux/arm/7": "linux/arm/v7", "arm/v6": "linux/arm/v6", "linux/armhf": "linux/arm/v7",
		"linux/arm64": "linux/arm64", "linux/arm64/v8": "linux/arm64", "aarch64": "linux/arm64", "arm64v8": "linux/arm64",
		"linux/aarch64": "linux/arm64", "LINUX/AMD64": "linux/amd64", "x86_64": "linux/amd64", "x86-64": "linux/amd64",
		"linux/amd64/v1": "linux/amd64", "linux/amd64/v3": "linux/amd64/v3", "i386": "linux/386", "riscv64": "linux/riscv64",
		"windows/amd64": "windows/amd64", "linux/mips64le": "linux/mips64le",
	} {
		p, err := ParsePlatform(in)
		require.NoError(t, err, in)
		require.Equal(t, want, p.String(), in)
		again, err := ParsePlatform(want)
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
	for _, in := range []string{"", "/", "linux", "linux/", "/arm", "a/b/c/d", "linux/arm/../x", "linux/a b", "linux/arm\n", "arm/arm64"} {
		_, err := ParsePlatform(in)
		require.Error(t, err, in)
	}
}

func TestPlatformMatch(t *testing.T) {
	parse := func(s string) Platform {
		p, err := ParsePlatform(s)
		require.NoError(t, err)
		return p
	}
	// The images in the order of preference; what does not fit is left out.
	for want, have := range map[string][]string{
		"linux/arm/v7":   {"linux/arm/v7", "linux/arm/v6", "linux/arm/v5"},
		"linux/arm/v6":   {"linux/arm/v6", "linux/arm/v5"},
		"linux/arm/v5":   {"linux/arm/v5"},
		"linux/arm64":    {"linux/arm64"},
		"linux/arm64/v9": {"linux/arm64/v9", "linux/arm64/v8.2", "linux/arm64"},
		"linux/amd64":    {"linux/amd64"},
		"linux/amd64/v3": {"linux/amd64/v3", "linux/amd64/v2", "linux/amd64"},
	} {
		last := ExactFit + 1
		for _, h := range have {
			fit := parse(want).Match(parse(h))
			require.Greater(t, fit, NoFit, "%s on %s", h, want)
			require.Less(t, fit, last, "%s on %s", h, want)
			require.Equal(t, h != want, fit.Fallback())
			last = fit
		}
		for _, h := range []string{"linux/arm/v8", "linux/386", "windows/amd64", "linux/riscv64", "linux/arm64/v9.5", "linux/amd64/v4"} {
			require.Equal(t, NoFit, parse(want).Match(parse(h)), "%s on %s", h, want)
		}
	}
}

func TestRef(t *testing.T) {
	for in, want := range map[string][2]string{
		"web":                          {"docker.io/library/web:latest", "web:latest"},
		"web:1":                        {"docker.io/library/web:1", "web:1"},
		"me/web:1":                     {"docker.io/me/web:1", "me/web:1"},
		"docker.io/library/web:1":      {"docker.io/library/web:1", "web:1"},
		"docker.io/web:1":              {"docker.io/library/web:1", "web:1"},
		"localhost/web":                {"localhost/web:latest", "localhost/web:latest"},
		"localhost:5000/web":           {"localhost:5000/web:latest", "localhost:5000/web:latest"},
		"registry.example/a/b/c-d_e:X": {"registry.example/a/b/c-d_e:X", "registry.example/a/b/c-d_e:X"},
	} {
		r, err := parseRef(in)
		require.NoError(t, err, in)
		require.Equal(t, want, [2]string{r.String(), r.familiar()}, in)
	}
	for _, in := range []string{"", ":1", "web:", "web@sha256:00", "WEB:1", "a//b:1", "a/../b:1", "web:1\n", "web:.x", "-web:1"} {
		_, err := parseRef(in)
		require.Error(t, err, in)
	}
}

func TestChainIDs(t *testing.T) {
	a, b := digest.Of([]byte("a")), digest.Of([]byte("b"))
	require.Equal(t, []Digest{a, digest.Of([]byte(string(a) + " " + string(b)))}, ChainIDs([]Digest{a, b}))
	require.Empty(t, ChainIDs(nil))
}

func TestDigest(t *testing.T) {
	d := digest.Of(nil)
	require.Equal(t, Digest("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), d)
	got, err := digest.FromHex(d.Hex())
	require.NoError(t, err)
	require.Equal(t, d, got)
	for _, bad := range []string{"", "sha256:", d.Hex(), d.String() + "0", "sha256:" + d.Hex()[:63] + "G", "SHA256:" + d.Hex()} {
		_, err := digest.Parse(bad)
		require.ErrorContains(t, err, "malformed digest", bad)
	}
}
