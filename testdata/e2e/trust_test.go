package e2e

import (
	"crypto/ecdsa"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const storeLock = "/data/mender-app/.mender-app/lock"

// nobody is the command that runs another one as a user without rights.
var nobody = []string{"--reuid=65534", "--regid=65534", "--clear-groups"}

// A user without rights holds every lock that he can, also one in a store of an
// earlier version. The Mender client can still roll back.
func TestOtherUserCannotBlock(t *testing.T) {
	d := device(t)
	w := watch(t, d)
	mender(t, d, "install", release(t, d, "1", ""))
	mender(t, d, "commit")
	mender(t, d, "install", release(t, d, "2", ""))
	says(t, w, "web 2")
	d.MustRun(t, "chmod", "0755", filepath.Dir(storeLock))
	d.MustRun(t, "chmod", "0644", storeLock)
	holder := d.Command(t.Context(), "setpriv", append(nobody, "flock", "--exclusive", storeLock, "sleep", "1000")...)
	require.NoError(t, holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	require.Eventually(t, func() bool {
		r, err := d.Run("flock", "--nonblock", "--exclusive", storeLock, "true")
		return err == nil && r.Code == 1
	}, 10*time.Second, 100*time.Millisecond, "the lock is not held")

	mender(t, d, "rollback")
	says(t, w, "web 1")
	d.MustProvide(t, provides("1"))
	require.Equal(t, "600", d.MustRun(t, "stat", "--format=%a", storeLock)[:3])
	require.Equal(t, "700", d.MustRun(t, "stat", "--format=%a", filepath.Dir(storeLock))[:3])
	r, err := d.Run("setpriv", append(nobody, "flock", "--nonblock", "--exclusive", storeLock, "true")...)
	require.NoError(t, err)
	require.Contains(t, r.Output(), "Permission denied")
}

// Keys are bound to applications. The key for the shop, with which the real mender-
// artifact signs, may install the shop; the key for another application may not, and
// nothing is changed.
func TestBoundKeys(t *testing.T) {
	d := device(t)
	require.NoError(t, d.WithoutMender())
	conf, err := os.ReadFile(d.Path("/etc/mender/mender-app.conf"))
	require.NoError(t, err)
	shop, till := t.TempDir()+"/shop.key", t.TempDir()+"/till.key"
	for name, file := range map[string]string{"shop": shop, "till": till} {
		key, ok := ecdsaKey(t).(*ecdsa.PrivateKey)
		require.True(t, ok)
		private, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		writePEM(t, file, "EC PRIVATE KEY", private)
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(t, err)
		writePEM(t, d.Path("/etc/mender/"+name+".pub"), "PUBLIC KEY", public)
		conf = append(conf, "\n[[keys]]\nfile = \"/etc/mender/"+name+".pub\"\napplications = [\""+name+"*\"]\n"...)
	}
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app.conf"), conf, 0o644))
	unsigned := release(t, d, "1", "")
	sign := func(key string) string {
		file := d.Share("signed-by-" + filepath.Base(key) + ".mender")
		out, err := exec.Command("mender-artifact", "sign", unsigned, "-k", key, "-o", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return file
	}
	before := unchanging(d.MustState(t))
	for file, says := range map[string]string{
		unsigned:   "it is not signed",
		sign(till): `till.pub may not sign for application "shop", only for till*`,
	} {
		r, err := d.Run("mender-app", "install", file)
		require.NoError(t, err)
		require.Equal(t, 9, r.Code, r.Output())
		require.Contains(t, r.Output(), says)
		require.Equal(t, before, unchanging(d.MustState(t)))
	}
	d.MustRun(t, "mender-app", "install", "--commit", sign(shop))
	w := watch(t, d)
	says(t, w, "web 1")
}
