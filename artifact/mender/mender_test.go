package mender

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/internal/rig"
)

func TestRoundTrip(t *testing.T) {
	spec := sampleSpec()
	spec.Scripts = []Script{{"ArtifactInstall_Enter_00", []byte("#!/bin/sh\n")}, {"ArtifactCommit_Leave_99_x", nil}}
	spec.Group, spec.DependsNames, spec.DependsGroups = "g", []string{"release-1"}, []string{"g1", "g2"}
	for _, c := range []Compression{"", None, Gzip, LZMA, Zstd} {
		t.Run(string(c), func(t *testing.T) {
			b := write(t, spec, Options{Compression: c})
			require.True(t, bytes.Equal(b, write(t, spec, Options{Compression: c})))
			h, files, err := read(b)
			require.NoError(t, err)
			require.Equal(t, spec.Name, h.Name)
			require.Equal(t, "g", h.Group)
			require.Equal(t, spec.DeviceTypes, h.DeviceTypes)
			require.Equal(t, spec.DependsNames, h.DependsNames)
			require.Equal(t, spec.DependsGroups, h.DependsGroups)
			require.Equal(t, []string{"ArtifactCommit_Leave_99_x", "ArtifactInstall_Enter_00"}, h.Scripts)
			require.Equal(t, "app", h.PayloadType)
			require.Equal(t, map[string]string{"rootfs-image.web.version": "2.0"}, h.Provides)
			require.Equal(t, map[string][]string{"rootfs-image.web.version": {"1.0"}}, h.Depends)
			require.Equal(t, []string{"rootfs-image.web.*"}, h.ClearsProvides)
			require.Equal(t, spec.MetaData, h.MetaData)
			require.False(t, h.Signed)
			require.Equal(t, map[string]string{"images.tar.gz": strings.Repeat("image ", 20000), "manifests.tar.gz": "manifests"}, files)
		})
	}
	other := write(t, spec, Options{ModTime: time.Unix(1700000000, 0)})
	require.False(t, bytes.Equal(other, write(t, spec, Options{})))
	_, _, err := read(other)
	require.NoError(t, err)
}

func TestSignatures(t *testing.T) {
	spec := sampleSpec()
	unsigned := write(t, spec, Options{})
	for _, kind := range []string{"RSA", "ECDSA", "Ed25519"} {
		t.Run(kind, func(t *testing.T) {
			k, other := newKey(t, kind), newKey(t, "ECDSA")
			b := write(t, spec, Options{Key: k.signer})
			h, _, err := read(b)
			require.NoError(t, err)
			require.True(t, h.Signed)
			require.Nil(t, h.SignedBy, "nothing was verified")
			require.Equal(t, b, write(t, spec, Options{Key: k.signer}), "a key signs the same content with the same bytes")
			h, _, err = read(b, other.signer.Public(), k.signer.Public())
			require.NoError(t, err)
			require.Equal(t, k.signer.Public(), h.SignedBy)
			_, _, err = read(b, other.signer.Public())
			require.ErrorIs(t, err, ErrSignature)
			parts := split(t, b)
			for i := 0; i < len(parts[1].body); i += 50 { // the manifest
				parts[1].body[i] ^= 1
				_, _, err = read(join(t, parts), k.signer.Public())
				require.ErrorIs(t, err, ErrSignature)
				parts[1].body[i] ^= 1
			}
			_, _, err = read(unsigned, k.signer.Public())
			require.ErrorIs(t, err, ErrSignature)
			require.ErrorContains(t, err, "not signed")
		})
	}
}

// TestMenderArtifact has the real mender-artifact validate and read what we
// write.
func TestMenderArtifact(t *testing.T) {
	rig.Need(t, "mender-artifact")
	keys := map[string]keyPair{"RSA": newKey(t, "RSA"), "ECDSA": newKey(t, "ECDSA")}
	for _, c := range []Compression{None, Gzip, LZMA} {
		for _, kind := range []string{"", "RSA", "ECDSA"} {
			t.Run(fmt.Sprintf("%s %s", c, kind), func(t *testing.T) {
				name := filepath.Join(t.TempDir(), "a.mender")
				k := keys[kind]
				require.NoError(t, os.WriteFile(name, write(t, sampleSpec(), Options{Compression: c, Key: k.signer}), 0o644))
				if kind == "" { // a signed one it validates only with the key
					rig.Run(t, "mender-artifact", "validate", name)
				}
				out := rig.Run(t, "mender-artifact", "read", name)
				for _, s := range []string{
					"Name: release-2", "qemux86-64", "raspberrypi4", "Type:   app", "rootfs-image.web.version: 2.0",
					"rootfs-image.web.version: 1.0", "rootfs-image.web.*", `"application_name": "web"`, "images.tar.gz", "manifests.tar.gz",
				} {
					require.Contains(t, out, s)
				}
				if kind != "" {
					require.Contains(t, rig.Run(t, "mender-artifact", "validate", "-k", k.public, name), "validated successfully")
					require.Contains(t, rig.Run(t, "mender-artifact", "read", "-k", k.public, name), "Signature: signed and verified correctly")
				}
			})
		}
	}
}

// TestMenderArtifactWrites reads what the real mender-artifact writes, and
// compares what both say of the software's version.
func TestMenderArtifactWrites(t *testing.T) {
	rig.Need(t, "mender-artifact")
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(in("images.tar.gz"), bytes.Repeat([]byte("image"), 30000), 0o644))
	require.NoError(t, os.WriteFile(in("manifests.tar.gz"), []byte("manifests"), 0o644))
	require.NoError(t, os.WriteFile(in("meta"), []byte(`{"application_name":"web"}`), 0o644))
	require.NoError(t, os.WriteFile(in("ArtifactInstall_Enter_00"), []byte("#!/bin/sh\n"), 0o755))
	rsaPair, ecPair := newKey(t, "RSA"), newKey(t, "ECDSA")
	for _, c := range []struct {
		name string
		args []string
		key  *keyPair
		// The parts of the keys of the provides.
		filesystem, software, version string
	}{
		{"plain", nil, nil, "rootfs-image", "app", "release-1"},
		{"lzma", []string{"--compression", "lzma"}, nil, "rootfs-image", "app", "release-1"},
		{"none", []string{"--compression", "none", "--software-name", "web"}, nil, "rootfs-image", "web", "release-1"},
		{"version", []string{"--software-name", "web", "--software-version", "7"}, nil, "rootfs-image", "web", "7"},
		{"filesystem", []string{"--software-filesystem", "data", "--software-name", "web"}, nil, "data", "web", "release-1"},
		{"RSA", []string{"-k", rsaPair.private}, &rsaPair, "rootfs-image", "app", "release-1"},
		{"ECDSA", []string{"-k", ecPair.private}, &ecPair, "rootfs-image", "app", "release-1"},
		{"state script", []string{"-s", in("ArtifactInstall_Enter_00")}, nil, "rootfs-image", "app", "release-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := in("out.mender")
			rig.Run(t, append([]string{
				"mender-artifact", "write", "module-image", "-T", "app", "-n", "release-1", "-t", "a", "-t", "b", "-o", name,
				"-f", in("images.tar.gz"), "-f", in("manifests.tar.gz"), "-m", in("meta"), "-d", "x.y:z", "-N", "release-0", "-g", "group", "-G", "other",
			}, c.args...)...)
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			var keys []crypto.PublicKey
			if c.key != nil {
				keys = append(keys, c.key.signer.Public())
			}
			h, files, err := read(b, keys...)
			require.NoError(t, err)
			require.Equal(t, "release-1", h.Name)
			require.Equal(t, []string{"a", "b"}, h.DeviceTypes)
			require.Equal(t, []string{"release-0"}, h.DependsNames)
			require.Equal(t, "group", h.Group)
			require.Equal(t, []string{"other"}, h.DependsGroups)
			require.Equal(t, map[string][]string{"x.y": {"z"}}, h.Depends)
			require.Equal(t, c.key != nil, h.Signed)
			require.JSONEq(t, `{"application_name":"web"}`, string(h.MetaData))
			require.Equal(t, "manifests", files["manifests.tar.gz"])
			key := c.filesystem + "." + c.software
			provides, clears := map[string]string{key + ".version": c.version}, []string{key + ".*"}
			require.Equal(t, provides, h.Provides)
			require.Equal(t, clears, h.ClearsProvides)
			if c.name == "state script" {
				require.Equal(t, []string{"ArtifactInstall_Enter_00"}, h.Scripts)
			}

			// The same artifact by us says the same in the same words.
			spec := Spec{
				Name: h.Name, Group: h.Group, DeviceTypes: h.DeviceTypes, DependsNames: h.DependsNames, DependsGroups: h.DependsGroups,
				PayloadType: h.PayloadType, Provides: provides, ClearsProvides: clears, Depends: map[string][]string{"x.y": {"z"}}, MetaData: h.MetaData,
			}
			ours, _, err := read(write(t, spec, Options{}))
			require.NoError(t, err)
			require.Equal(t, string(h.HeaderInfo), string(ours.HeaderInfo))
			require.Equal(t, string(h.TypeInfo), string(ours.TypeInfo))
		})
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--augment-type", "app", "--augment-file", in("meta")}, "unsupported"},
	} {
		name := in("bad.mender")
		rig.Run(t, append([]string{"mender-artifact", "write", "module-image", "-T", "app", "-n", "r", "-t", "a", "-o", name, "-f", in("meta")}, c.args...)...)
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		_, _, err = read(b)
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, c.says)
	}
	rig.Run(t, "mender-artifact", "write", "bootstrap-artifact", "-n", "r", "-t", "a", "-o", in("boot.mender"))
	b, err := os.ReadFile(in("boot.mender"))
	require.NoError(t, err)
	_, _, err = read(b)
	require.ErrorIs(t, err, ErrUnsupported)
}

func TestNextSkips(t *testing.T) {
	r, err := NewReader(bytes.NewReader(write(t, sampleSpec(), Options{Compression: Gzip})), ReadOptions{})
	require.NoError(t, err)
	for range 2 {
		_, err = r.Next()
		require.NoError(t, err)
	}
	for range 2 {
		_, err = r.Next()
		require.Equal(t, io.EOF, err)
		n, err := r.Read(make([]byte, 10))
		require.Equal(t, io.EOF, err)
		require.Zero(t, n)
	}
}

func TestWriteErrors(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, c := range []struct {
		name string
		edit func(*Spec, *Options)
		says string
	}{
		{"no name", func(s *Spec, _ *Options) { s.Name = "" }, "no artifact name"},
		{"newline in the name", func(s *Spec, _ *Options) { s.Name = "a\nb" }, "cannot be printed"},
		{"no device type", func(s *Spec, _ *Options) { s.DeviceTypes = nil }, "no device type"},
		{"no type", func(s *Spec, _ *Options) { s.PayloadType = "" }, "no payload type"},
		{"meta-data null", func(s *Spec, _ *Options) { s.MetaData = []byte("null") }, "not a JSON object"},
		{"meta-data empty", func(s *Spec, _ *Options) { s.MetaData = []byte{} }, "not a JSON object"},
		{"a key of meta-data twice", func(s *Spec, _ *Options) { s.MetaData = []byte(`{"a":1,"a":2}`) }, `meta-data: ambiguous JSON: the key "a" occurs twice`},
		{"a provide in two cases", func(s *Spec, _ *Options) { s.Provides = map[string]string{"x.web": "1", "x.Web": "2"} }, "type-info: ambiguous JSON: the keys"},
		{"a script of the operating system", func(s *Spec, _ *Options) { s.Scripts = []Script{{"Idle_Enter_00", nil}} }, `not "Idle_Enter_00"`},
		{"the path of a script", func(s *Spec, _ *Options) { s.Scripts = []Script{{"ArtifactInstall_Enter_00_/../x", nil}} }, "a state script has a name"},
		{"a script twice", func(s *Spec, _ *Options) {
			s.Scripts = []Script{{"ArtifactInstall_Enter_00", nil}, {"ArtifactInstall_Enter_00", nil}}
		}, "two scripts"},
		{"a large script", func(s *Spec, _ *Options) {
			s.Scripts = []Script{{"ArtifactInstall_Enter_00", make([]byte, MaxScript+1)}}
		}, "of more than 1048576 bytes"},
		{"large scripts", func(s *Spec, _ *Options) {
			for i := range 9 {
				s.Scripts = append(s.Scripts, Script{fmt.Sprintf("ArtifactInstall_Enter_%02d", i), make([]byte, MaxScript)})
			}
		}, "a header of"},
		{"file name", func(s *Spec, _ *Options) { s.Files[0].Name = "../x" }, "malformed name"},
		{"two files", func(s *Spec, _ *Options) { s.Files[0].Name = s.Files[1].Name }, "two files"},
		{"short file", func(s *Spec, _ *Options) { s.Files[0].Size++ }, "bytes announced"},
		{"long file", func(s *Spec, _ *Options) { s.Files[0].Size-- }, "bytes announced"},
		{"file cannot be opened", func(s *Spec, _ *Options) { s.Files[0].Open = func() (io.ReadCloser, error) { return nil, broken } }, "on fire"},
		{"changing file", func(s *Spec, _ *Options) {
			n := 0
			s.Files[1].Open = func() (io.ReadCloser, error) {
				n++
				return io.NopCloser(strings.NewReader(fmt.Sprintf("manifest%d", n))), nil
			}
		}, "changed while it was read"},
		{"compression", func(_ *Spec, o *Options) { o.Compression = "bzip2" }, "bzip2"},
		{"key", func(_ *Spec, o *Options) { o.Key, _ = ecdsa.GenerateKey(elliptic.P384(), rand.Reader) }, "want RSA, ECDSA on P-256, or Ed25519"},
		{"no place", func(_ *Spec, o *Options) { o.Compression, o.TempDir = Gzip, "/nonexistent" }, "nonexistent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, o := sampleSpec(), Options{}
			c.edit(&spec, &o)
			err := Write(io.Discard, spec, o)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestKeys(t *testing.T) {
	block := func(typ string, der []byte, err error) []byte {
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
	}
	for _, kind := range []string{"RSA", "ECDSA", "Ed25519"} {
		k := newKey(t, kind)
		for _, name := range []string{k.private, k.public} {
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			// As openssl ecparam writes it, with its parameters in front.
			b = append(block("EC PARAMETERS", []byte{6, 0}, nil), b...)
			if name == k.private {
				got, err := LoadPrivateKey(b)
				require.NoError(t, err)
				require.Equal(t, k.signer.Public(), got.Public())
				_, err = LoadPublicKey(b)
				require.ErrorIs(t, err, ErrKey)
				continue
			}
			got, err := LoadPublicKey(b)
			require.NoError(t, err)
			require.Equal(t, k.signer.Public(), got)
			_, err = LoadPrivateKey(b)
			require.ErrorIs(t, err, ErrKey)
		}
		der, err := x509.MarshalPKCS8PrivateKey(k.signer)
		got, err := LoadPrivateKey(block("PRIVATE KEY", der, err))
		require.NoError(t, err)
		require.Equal(t, k.signer.Public(), got.Public())
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	for _, key := range []any{p384, x25519} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		_, err = LoadPrivateKey(block("PRIVATE KEY", der, err))
		require.ErrorIs(t, err, ErrKey)
	}
	for _, b := range [][]byte{nil, []byte("x"), block("PRIVATE KEY", []byte("x"), nil), block("ENCRYPTED PRIVATE KEY", nil, nil)} {
		_, err := LoadPrivateKey(b)
		require.ErrorIs(t, err, ErrKey)
	}
}
