package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Where a device has its key, and the decrypted secrets of the shop.
const (
	IdentityFile = "/etc/mender/mender-app/identity.age"
	DecryptedDir = "/run/mender-app/secrets/shop"
)

// SecretShop is the shop's compose file with a secret of the service stock, which
// is the same in all releases.
func SecretShop(version string) string {
	return strings.NewReplacer(
		"  stock:\n", "  stock:\n    restart: always\n    stop_grace_period: 1s\n    secrets: [{source: pin, uid: \"103\", mode: 0440}]\n",
		"  web:\n", "  web:\n    restart: always\n",
	).Replace(Compose(version)) + "secrets:\n  pin: {file: ./conf/pin}\n"
}

// NewKey makes a key that secrets can be encrypted to.
func NewKey(t *testing.T) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return key
}

// GiveKey installs a key as the device's identity.
func GiveKey(t *testing.T, d *bed.Device, key *age.X25519Identity) {
	t.Helper()
	require.NoError(t, os.MkdirAll(d.Path(filepath.Dir(IdentityFile)), 0o700))
	require.NoError(t, os.WriteFile(d.Path(IdentityFile), []byte(key.String()+"\n"), 0o600))
}

// ECDSAKey makes a key that signs artifacts.
func ECDSAKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// WritePEM writes a block of PEM into a file.
func WritePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(t, os.WriteFile(path, text, 0o600))
}
