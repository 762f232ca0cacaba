package mender

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/internal/rig"
)

func memFile(name, text string) File {
	return File{Name: name, Size: int64(len(text)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	}}
}

func sampleSpec() Spec {
	return Spec{
		Name: "release-2", DeviceTypes: []string{"qemux86-64", "raspberrypi4"}, PayloadType: PayloadTypeApp,
		Provides: map[string]string{"rootfs-image.web.version": "2.0"}, ClearsProvides: []string{"rootfs-image.web.*"},
		Depends:  map[string][]string{"rootfs-image.web.version": {"1.0"}},
		MetaData: []byte(`{"application_name":"web","version":"1.0"}`),
		Files:    []File{memFile("images.tar.gz", strings.Repeat("image ", 20000)), memFile("manifests.tar.gz", "manifests")},
	}
}

func write(t testing.TB, spec Spec, o Options) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, Write(&buf, spec, o))
	return buf.Bytes()
}

// read reads an artifact to its end.
func read(b []byte, keys ...crypto.PublicKey) (*Header, map[string]string, error) {
	r, err := NewReader(bytes.NewReader(b), ReadOptions{PublicKeys: keys})
	if err != nil {
		return nil, nil, err
	}
	files := make(map[string]string)
	for {
		f, err := r.Next()
		if err == io.EOF {
			return r.Header(), files, nil
		}
		if err != nil {
			return nil, nil, err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, nil, err
		}
		if int64(len(text)) != f.Size {
			return nil, nil, fmt.Errorf("%d bytes, announced are %d", len(text), f.Size)
		}
		files[f.Name] = string(text)
	}
}

// keyPair is a key and the PEM files that mender-artifact takes.
type keyPair struct {
	signer          crypto.Signer
	private, public string
}

// rsaKey is the one RSA key of all tests: making one takes seconds on the
// smallest machines.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// newKey gives an RSA key, the same each time, or a new ECDSA or Ed25519 key.
func newKey(t testing.TB, kind string) keyPair {
	t.Helper()
	var k keyPair
	var block pem.Block
	switch kind {
	case "RSA":
		key, err := rsaKey()
		require.NoError(t, err)
		// The only form of an RSA key that 3.9.0 takes.
		k.signer, block = key, pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	case "ECDSA":
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		k.signer, block = key, pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
	case "Ed25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		k.signer, block = key, pem.Block{Type: "PRIVATE KEY", Bytes: der}
	}
	der, err := x509.MarshalPKIXPublicKey(k.signer.Public())
	require.NoError(t, err)
	dir := t.TempDir()
	k.private, k.public = filepath.Join(dir, "private.pem"), filepath.Join(dir, "public.pem")
	require.NoError(t, os.WriteFile(k.private, pem.EncodeToMemory(&block), 0o600))
	require.NoError(t, os.WriteFile(k.public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	return k
}

// part is a member of an artifact.
type part struct {
	name string
	body []byte
	typ  byte
}

// split takes an artifact apart, and join puts it together again.
func split(t testing.TB, b []byte) (parts []part) {
	t.Helper()
	tr := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return parts
		}
		require.NoError(t, err)
		body, err := io.ReadAll(tr)
		require.NoError(t, err)
		parts = append(parts, part{h.Name, body, h.Typeflag})
	}
}

func join(t testing.TB, parts []part) []byte {
	t.Helper()
	entries := make([]rig.Entry, len(parts))
	for i, p := range parts {
		entries[i] = rig.Entry{Name: p.name, Body: string(p.body), Type: p.typ}
	}
	return rig.Tar(t, entries...)
}
