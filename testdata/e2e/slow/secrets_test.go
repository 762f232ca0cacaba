package slow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// secretRelease makes an artifact of a release with a secret, encrypted to a
// recipient.
func secretRelease(t *testing.T, d *bed.Device, version, mode, secret string, to *age.X25519Identity) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "conf"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker-compose.yml"), []byte(e2e.SecretShop(version)), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "conf", "pin"), []byte(secret), 0o600))
	return e2e.Generate(t, d, "shop", "shop-"+version, version, "", e2e.Archive(t, e2e.Web(t, version, mode)), e2e.Archive(t, e2e.Stock(t)),
		"--manifests-dir="+dir, "--encrypt-secrets-to="+to.Recipient().String())
}

// runningID is the ID of the container of a service.
func runningID(t *testing.T, d *bed.Device, service string) string {
	t.Helper()
	id := strings.TrimSpace(d.MustRun(t, "docker", "ps", "--quiet", "--no-trunc", "--filter", "label=com.docker.compose.service="+service))
	require.Len(t, id, 64, "one container of %s", service)
	return id
}

// secretOf is the secret as the service stock sees it.
func secretOf(t *testing.T, d *bed.Device) string {
	t.Helper()
	pid := strings.TrimSpace(d.MustRun(t, "docker", "inspect", "--format={{.State.Pid}}", runningID(t, d, "stock")))
	return strings.TrimSpace(d.MustRun(t, "cat", "/proc/"+pid+"/root/run/secrets/pin"))
}

// nowhere asserts that a text is in no file on the device's disks: in the store, the
// engine's data, the configuration, the client's database and the logs.
func nowhere(t *testing.T, d *bed.Device, text string) {
	t.Helper()
	r, err := d.Run("find", "/data", "/var/lib/docker", "/etc", "/var/log", "/tmp", "-xdev", "-type", "f",
		"-newer", "/etc/mender/mender.conf", "-not", "-path", e2e.IdentityFile, "-exec", "grep", "--files-with-matches", text, "{}", "+")
	require.NoError(t, err)
	require.Empty(t, r.Stdout, "it is in a file")
}

// Secrets travel encrypted and are written only to a tmpfs. A device without the key
// refuses the release before anything is loaded. A service is restarted only if its
// secret changed; a failing release leaves the old one.
func TestEncryptedSecrets(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	key, other := e2e.NewKey(t), e2e.NewKey(t)
	one := secretRelease(t, d, "1", "", "hunter-one", key)
	require.Contains(t, e2e.MenderFails(t, d, "install", one), "this device has no key for encrypted secrets")
	require.Empty(t, d.MustState(t).Images)
	e2e.GiveKey(t, d, other)
	before := e2e.Unchanging(d.MustState(t))
	require.Contains(t, e2e.MenderFails(t, d, "install", one), "--encrypt-secrets-to "+other.Recipient().String())
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)))

	e2e.GiveKey(t, d, key)
	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	require.Equal(t, "hunter-one", secretOf(t, d))
	require.Equal(t, "700 0", strings.TrimSpace(d.MustRun(t, "stat", "--format=%a %u", e2e.DecryptedDir)))
	require.Equal(t, "440 103", strings.TrimSpace(d.MustRun(t, "bash", "-c", "stat --format='%a %u' "+e2e.DecryptedDir+"/*")))
	first := runningID(t, d, "stock")

	// The same secret, encrypted again: the service is not restarted.
	e2e.Mender(t, d, "install", secretRelease(t, d, "2", "", "hunter-one", key))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	require.Equal(t, first, runningID(t, d, "stock"))
	require.Equal(t, "hunter-one", secretOf(t, d))

	e2e.Mender(t, d, "install", secretRelease(t, d, "3", "", "hunter-three", key))
	require.Equal(t, "hunter-three", secretOf(t, d))
	e2e.Mender(t, d, "commit")
	require.NotEqual(t, first, runningID(t, d, "stock"))
	require.Equal(t, "1", strings.TrimSpace(d.MustRun(t, "bash", "-c", "ls "+e2e.DecryptedDir+" | wc -l")))

	out := e2e.MenderFails(t, d, "install", secretRelease(t, d, "4", "crash", "hunter-four", key))
	require.NotContains(t, out, "hunter")
	e2e.Says(t, w, "web 3")
	require.Equal(t, "hunter-three", secretOf(t, d))
	require.Equal(t, "1", strings.TrimSpace(d.MustRun(t, "bash", "-c", "ls "+e2e.DecryptedDir+" | wc -l")))
	d.MustProvide(t, e2e.Provides("3"))
	third := runningID(t, d, "stock")

	const module = "/usr/share/mender/app-modules/v1/docker-compose"
	d.MustRun(t, module, "EXPORT_MANIFEST", "shop", "/data/exported")
	d.MustRun(t, module, "SAVE", "shop", "shop/stock:1", "/data/saved.tar")
	for _, text := range []string{"hunter-one", "hunter-three", "hunter-four", key.String()} {
		nowhere(t, d, text)
	}

	restart := func() {
		t.Helper()
		require.NoError(t, d.StopEngine())
		d.MustRun(t, "rm", "-rf", "/run/mender-app")
	}
	restart() // as mender-app-secrets.service does it
	require.Contains(t, d.MustRun(t, "mender-app", "secrets"), "shop: its secrets are decrypted")
	require.NoError(t, d.StartEngine())
	e2e.Says(t, w, "web 3")
	bed.Eventually(t, time.Minute, "the service has its secret", func() bool { return secretOf(t, d) == "hunter-three" })
	require.Equal(t, third, runningID(t, d, "stock"))

	restart() // without it
	require.NoError(t, d.StartEngine())
	e2e.Says(t, w, "web 3")
	bed.Eventually(t, time.Minute, "the engine has given the service up", func() bool {
		return strings.HasPrefix(d.MustRun(t, "docker", "inspect", "--format={{.State.Status}} {{.State.Error}}", third), "exited failed to create")
	})
	d.MustRun(t, module, "START", "shop", "/data/mender-app/shop/manifests")
	require.Equal(t, "hunter-three", secretOf(t, d))

	d.MustRun(t, module, "STOP", "shop", "/data/mender-app/shop/manifests")
	require.NoDirExists(t, d.Path(e2e.DecryptedDir))
	d.MustRun(t, module, "START", "shop", "/data/mender-app/shop/manifests")
	require.Equal(t, "hunter-three", secretOf(t, d))
	d.MustRun(t, module, "PURGE", "shop", "/data/mender-app/shop/manifests")
	require.NoDirExists(t, d.Path(e2e.DecryptedDir))
	require.NoDirExists(t, d.Path("/data/mender-app/shop/secrets"))
}
