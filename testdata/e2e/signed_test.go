package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// A device that verifies signatures installs what app-gen signed with its key
// and nothing else.
func TestSignedArtifacts(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.use(t, d)
			signedArtifacts(t, d)
		})
	}
}

func signedArtifacts(t *testing.T, d *bed.Device) {
	t.Helper()
	for name, key := range map[string]crypto.Signer{"RSA": rsaKey(t), "ECDSA": ecdsaKey(t)} {
		t.Run(name, func(t *testing.T) {
			public, err := x509.MarshalPKIXPublicKey(key.Public())
			require.NoError(t, err)
			writePEM(t, d.Path("/etc/mender/key.pub"), "PUBLIC KEY", public)
			require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"ArtifactVerifyKey": "/etc/mender/key.pub"}`), 0o644))
			private, err := x509.MarshalPKCS8PrivateKey(key)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "key")
			writePEM(t, file, "PRIVATE KEY", private)
			other, err := x509.MarshalPKCS8PrivateKey(ecdsaKey(t))
			require.NoError(t, err)
			otherFile := filepath.Join(t.TempDir(), "other")
			writePEM(t, otherFile, "PRIVATE KEY", other)

			before := unchanging(d.MustState(t))
			menderFails(t, d, "install", release(t, d, "1", ""))
			menderFails(t, d, "install", release(t, d, "1", "", "--key", otherFile))
			require.Equal(t, before, unchanging(d.MustState(t)))

			mender(t, d, "install", release(t, d, "1", "", "--key", file))
			mender(t, d, "commit")
			d.MustProvide(t, provides("1"))
		})
	}
}

func rsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 3072)
	require.NoError(t, err)
	return key
}

func ecdsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(t, os.WriteFile(path, text, 0o600))
}
