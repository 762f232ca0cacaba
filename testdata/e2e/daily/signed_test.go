package daily

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A device that verifies signatures installs what app-gen signed with its key
// and nothing else.
func TestSignedArtifacts(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			signedArtifacts(t, d)
		})
	}
}

func signedArtifacts(t *testing.T, d *bed.Device) {
	t.Helper()
	for name, key := range map[string]crypto.Signer{"RSA": rsaKey(t), "ECDSA": e2e.ECDSAKey(t)} {
		t.Run(name, func(t *testing.T) {
			public, err := x509.MarshalPKIXPublicKey(key.Public())
			require.NoError(t, err)
			e2e.WritePEM(t, d.Path("/etc/mender/key.pub"), "PUBLIC KEY", public)
			require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"ArtifactVerifyKey": "/etc/mender/key.pub"}`), 0o644))
			private, err := x509.MarshalPKCS8PrivateKey(key)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "key")
			e2e.WritePEM(t, file, "PRIVATE KEY", private)
			other, err := x509.MarshalPKCS8PrivateKey(e2e.ECDSAKey(t))
			require.NoError(t, err)
			otherFile := filepath.Join(t.TempDir(), "other")
			e2e.WritePEM(t, otherFile, "PRIVATE KEY", other)

			before := e2e.Unchanging(d.MustState(t))
			e2e.MenderFails(t, d, "install", e2e.Release(t, d, "1", ""))
			e2e.MenderFails(t, d, "install", e2e.Release(t, d, "1", "", "--key", otherFile))
			require.Equal(t, before, e2e.Unchanging(d.MustState(t)))

			e2e.Mender(t, d, "install", e2e.Release(t, d, "1", "", "--key", file))
			e2e.Mender(t, d, "commit")
			d.MustProvide(t, e2e.Provides("1"))
		})
	}
}

func rsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 3072)
	require.NoError(t, err)
	return key
}
