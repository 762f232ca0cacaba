package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

const (
	identityFile = "/etc/mender/mender-app/identity.age"
	decryptedDir = "/run/mender-app/secrets/shop"
)

// secretShop is the shop's compose file with a secret of the service stock, which
// is the same in all releases.
func secretShop(version string) string {
	return strings.NewReplacer(
		"  stock:\n", "  stock:\n    restart: always\n    stop_grace_period: 1s\n    secrets: [{source: pin, uid: \"103\", mode: 0440}]\n",
		"  web:\n", "  web:\n    restart: always\n",
	).Replace(compose(version)) + "secrets:\n  pin: {file: ./conf/pin}\n"
}

// secretRelease makes an artifact of a release with a secret, encrypted to a
// recipient.
func secretRelease(t *testing.T, d *bed.Device, version, mode, secret string, to *age.X25519Identity) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "conf"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker-compose.yml"), []byte(secretShop(version)), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "conf", "pin"), []byte(secret), 0o600))
	return generate(t, d, "shop", "shop-"+version, version, "", archive(t, web(t, version, mode)), archive(t, stock(t)),
		"--manifests-dir="+dir, "--encrypt-secrets-to="+to.Recipient().String())
}

func newKey(t *testing.T) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return key
}

// giveKey installs a key as the device's identity.
func giveKey(t *testing.T, d *bed.Device, key *age.X25519Identity) {
	t.Helper()
	require.NoError(t, os.MkdirAll(d.Path(filepath.Dir(identityFile)), 0o700))
	require.NoError(t, os.WriteFile(d.Path(identityFile), []byte(key.String()+"\n"), 0o600))
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
		"-newer", "/etc/mender/mender.conf", "-not", "-path", identityFile, "-exec", "grep", "--files-with-matches", text, "{}", "+")
	require.NoError(t, err)
	require.Empty(t, r.Stdout, "it is in a file")
}

// Secrets travel encrypted and are written only to a tmpfs. A device without the key
// refuses the release before anything is loaded. A service is restarted only if its
// secret changed; a failing release leaves the old one.
func TestEncryptedSecrets(t *testing.T) {
	d := device(t)
	w := watch(t, d)
	key, other := newKey(t), newKey(t)
	one := secretRelease(t, d, "1", "", "hunter-one", key)
	require.Contains(t, menderFails(t, d, "install", one), "this device has no key for encrypted secrets")
	require.Empty(t, d.MustState(t).Images)
	giveKey(t, d, other)
	before := unchanging(d.MustState(t))
	require.Contains(t, menderFails(t, d, "install", one), "--encrypt-secrets-to "+other.Recipient().String())
	require.Equal(t, before, unchanging(d.MustState(t)))

	giveKey(t, d, key)
	mender(t, d, "install", one)
	mender(t, d, "commit")
	says(t, w, "web 1")
	require.Equal(t, "hunter-one", secretOf(t, d))
	require.Equal(t, "700 0", strings.TrimSpace(d.MustRun(t, "stat", "--format=%a %u", decryptedDir)))
	require.Equal(t, "440 103", strings.TrimSpace(d.MustRun(t, "bash", "-c", "stat --format='%a %u' "+decryptedDir+"/*")))
	first := runningID(t, d, "stock")

	// The same secret, encrypted again: the service is not restarted.
	mender(t, d, "install", secretRelease(t, d, "2", "", "hunter-one", key))
	mender(t, d, "commit")
	says(t, w, "web 2")
	require.Equal(t, first, runningID(t, d, "stock"))
	require.Equal(t, "hunter-one", secretOf(t, d))

	mender(t, d, "install", secretRelease(t, d, "3", "", "hunter-three", key))
	require.Equal(t, "hunter-three", secretOf(t, d))
	mender(t, d, "commit")
	require.NotEqual(t, first, runningID(t, d, "stock"))
	require.Equal(t, "1", strings.TrimSpace(d.MustRun(t, "bash", "-c", "ls "+decryptedDir+" | wc -l")))

	out := menderFails(t, d, "install", secretRelease(t, d, "4", "crash", "hunter-four", key))
	require.NotContains(t, out, "hunter")
	says(t, w, "web 3")
	require.Equal(t, "hunter-three", secretOf(t, d))
	require.Equal(t, "1", strings.TrimSpace(d.MustRun(t, "bash", "-c", "ls "+decryptedDir+" | wc -l")))
	d.MustProvide(t, provides("3"))
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
	says(t, w, "web 3")
	bed.Eventually(t, time.Minute, "the service has its secret", func() bool { return secretOf(t, d) == "hunter-three" })
	require.Equal(t, third, runningID(t, d, "stock"))

	restart() // without it
	require.NoError(t, d.StartEngine())
	says(t, w, "web 3")
	bed.Eventually(t, time.Minute, "the engine has given the service up", func() bool {
		return strings.HasPrefix(d.MustRun(t, "docker", "inspect", "--format={{.State.Status}} {{.State.Error}}", third), "exited failed to create")
	})
	d.MustRun(t, module, "START", "shop", "/data/mender-app/shop/manifests")
	require.Equal(t, "hunter-three", secretOf(t, d))

	d.MustRun(t, module, "STOP", "shop", "/data/mender-app/shop/manifests")
	require.NoDirExists(t, d.Path(decryptedDir))
	d.MustRun(t, module, "START", "shop", "/data/mender-app/shop/manifests")
	require.Equal(t, "hunter-three", secretOf(t, d))
	d.MustRun(t, module, "PURGE", "shop", "/data/mender-app/shop/manifests")
	require.NoDirExists(t, d.Path(decryptedDir))
	require.NoDirExists(t, d.Path("/data/mender-app/shop/secrets"))
}
