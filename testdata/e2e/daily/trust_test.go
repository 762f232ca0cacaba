package daily

import (
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
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

// Under the Mender client, which trusts one key for all artifacts: two of three keys must sign
// the statement, a release must not have expired, by the newest statement where the clock is
// not set, and a list in an artifact that is refused revokes a key and a kept release.
func TestThresholdExpiryAndRevocation(t *testing.T) {
	d := e2e.Device(t)
	conf, err := os.ReadFile(d.Path("/etc/mender/mender-app.conf"))
	require.NoError(t, err)
	keys := map[string]string{}
	for _, name := range []string{"fleet", "anna", "bert", "carl"} {
		key, ok := e2e.ECDSAKey(t).(*ecdsa.PrivateKey)
		require.True(t, ok)
		private, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		keys[name] = filepath.Join(t.TempDir(), name+".key")
		e2e.WritePEM(t, keys[name], "EC PRIVATE KEY", private)
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(t, err)
		e2e.WritePEM(t, d.Path("/etc/mender/"+name+".pub"), "PUBLIC KEY", public)
	}
	conf = append(conf, "\nrequire_unexpired = true\n[[keys]]\nfiles = [\"/etc/mender/anna.pub\", \"/etc/mender/bert.pub\", \"/etc/mender/carl.pub\"]\nthreshold = 2\napplications = [\"*\"]\n"...)
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app.conf"), conf, 0o644))
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"ArtifactVerifyKey": "/etc/mender/fleet.pub"}`), 0o644))
	programs, err := bed.Programs()
	require.NoError(t, err)
	appGen := func(at time.Time, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(programs, "app-gen"), args...)
		cmd.Env = append(os.Environ(), fmt.Sprint("SOURCE_DATE_EPOCH=", at.Unix()))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	stock := e2e.Archive(t, e2e.Stock(t))
	release := func(version string, issued time.Time, expires string, by []string, options ...string) string {
		t.Helper()
		manifests := t.TempDir()
		compose := "services:\n  stock:\n    image: shop/stock:1\n    environment: [VERSION=" + version + "]\n    stop_grace_period: 1s\n"
		require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(compose), 0o644))
		out := d.Share("shop-" + version + ".mender")
		appGen(issued, append([]string{
			"-a", "shop", "-n", "shop-" + version, "--application-version", version, "--software-version", version, "-t", bed.Type, "-p", bed.Platform(),
			"--orchestrator", "docker-compose", "-m", manifests, "--deep-delta=false", "--replace", "--output-path", out, "--expires", expires, "--key", keys[by[0]], stock,
		}, options...)...)
		for _, name := range by[1:] {
			appGen(issued, "sign", out, "--key", keys[name])
		}
		text, err := exec.Command("mender-artifact", "sign", "-k", keys["fleet"], "--force", "-o", out, out).CombinedOutput()
		require.NoError(t, err, "%s", text)
		return out
	}
	refused := func(file, says string) {
		t.Helper()
		before := e2e.Unchanging(d.MustState(t))
		require.Contains(t, e2e.MenderFails(t, d, "install", file), says)
		require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
	}
	both, now, day := []string{"anna", "bert"}, time.Now(), 24*time.Hour

	e2e.Mender(t, d, "install", release("1", now, "9d", both))
	e2e.Mender(t, d, "commit")
	refused(release("2", now, "9d", []string{"anna"}), "1 of the keys of [[keys]] number 1 signed it, and 2 must")
	refused(release("2", now.Add(-9*day), "1d", both), "the release expired at")

	// The programs cannot be from the future: the clock is not set.
	d.MustRun(t, "sh", "-c", "touch -d '+5 days' $(command -v mender-app) /usr/share/mender/modules/v3/app")
	e2e.Mender(t, d, "install", release("2", now.Add(20*day), "9d", both))
	e2e.Mender(t, d, "commit")
	refused(release("3", now, "9d", both), "at least, by a statement that this device has seen")

	// The artifact with the list is refused, for it has expired, and the list counts.
	list := d.Share("list.json")
	appGen(now, "revoke", "--version", "1", "--revoked-key", d.Path("/etc/mender/anna.pub"), "-o", list, "--key", keys["bert"])
	appGen(now, "sign", list, "--key", keys["carl"])
	fresh := now.Add(20 * day)
	e2e.MenderFails(t, d, "install", release("4", now, "9d", []string{"bert", "carl"}, "--revocations", list))
	refused(release("5", fresh, "9d", both), "1 of the keys of [[keys]] number 1 signed it, and 2 must")
	before := e2e.Unchanging(d.MustState(t))
	r, err := d.Run("mender-app", "rollback", "shop")
	require.NoError(t, err)
	require.Equal(t, 9, r.Code, r.Output())
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)))
	e2e.Mender(t, d, "install", release("5", fresh, "9d", []string{"bert", "carl"}))
	e2e.Mender(t, d, "commit")
	d.MustProvide(t, e2e.Provides("5"))
}
