package daily

import (
	"crypto/ecdsa"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// Keys are bound to applications. The key for the shop, with which the real mender-
// artifact signs, may install the shop; the key for another application may not, and
// nothing is changed.
func TestBoundKeys(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	conf, err := os.ReadFile(d.Path("/etc/mender/mender-app.conf"))
	require.NoError(t, err)
	shop, till := t.TempDir()+"/shop.key", t.TempDir()+"/till.key"
	for name, file := range map[string]string{"shop": shop, "till": till} {
		key, ok := e2e.ECDSAKey(t).(*ecdsa.PrivateKey)
		require.True(t, ok)
		private, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		e2e.WritePEM(t, file, "EC PRIVATE KEY", private)
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(t, err)
		e2e.WritePEM(t, d.Path("/etc/mender/"+name+".pub"), "PUBLIC KEY", public)
		conf = append(conf, "\n[[keys]]\nfile = \"/etc/mender/"+name+".pub\"\napplications = [\""+name+"*\"]\n"...)
	}
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app.conf"), conf, 0o644))
	unsigned := e2e.Release(t, d, "1", "")
	sign := func(key string) string {
		file := d.Share("signed-by-" + filepath.Base(key) + ".mender")
		out, err := exec.Command("mender-artifact", "sign", unsigned, "-k", key, "-o", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return file
	}
	before := e2e.Unchanging(d.MustState(t))
	for file, says := range map[string]string{
		unsigned:   "it is not signed",
		sign(till): `till.pub may not sign for application "shop", only for till*`,
	} {
		r, err := d.Run("mender-app", "install", file)
		require.NoError(t, err)
		require.Equal(t, 9, r.Code, r.Output())
		require.Contains(t, r.Output(), says)
		require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
	}
	d.MustRun(t, "mender-app", "install", "--commit", sign(shop))
	w := e2e.Watch(t, d)
	e2e.Says(t, w, "web 1")
}
