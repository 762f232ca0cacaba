package migration

import (
	"crypto/ecdsa"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
	"github.com/mender-app/mender-app/testdata/peers"
)

// What mender-artifact makes of artifacts of app-gen is installed: signed, signed again,
// renamed, and taken apart and made again. The device verifies signatures.
func TestChangedByMenderArtifact(t *testing.T) {
	t.Parallel()
	newest, missing := peers.Own("mender-artifact")
	for i, tool := range []string{"mender-artifact", newest} {
		c := e2e.Clients[i]
		t.Run(c.Name, func(t *testing.T) {
			if tool == newest && missing != nil {
				t.Skip(missing)
			}
			d := e2e.Device(t)
			c.Use(t, d)
			changedByMenderArtifact(t, d, tool)
		})
	}
}

func changedByMenderArtifact(t *testing.T, d *bed.Device, tool string) {
	t.Helper()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(tool, args...).CombinedOutput()
		require.NoError(t, err, "mender-artifact %v\n%s", args, out)
		return string(out)
	}
	fleet := e2e.ECDSAKey(t)
	private, err := x509.MarshalECPrivateKey(fleet.(*ecdsa.PrivateKey))
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(fleet.Public())
	require.NoError(t, err)
	key, other := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "other")
	e2e.WritePEM(t, key, "EC PRIVATE KEY", private)
	e2e.WritePEM(t, d.Path("/etc/mender/key.pub"), "PUBLIC KEY", public)
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"ArtifactVerifyKey": "/etc/mender/key.pub"}`), 0o644))
	private, err = x509.MarshalECPrivateKey(e2e.ECDSAKey(t).(*ecdsa.PrivateKey))
	require.NoError(t, err)
	e2e.WritePEM(t, other, "EC PRIVATE KEY", private)

	w := e2e.Watch(t, d)
	install := func(version, name, file string) {
		t.Helper()
		e2e.Mender(t, d, "install", file)
		e2e.Mender(t, d, "commit")
		e2e.Says(t, w, "web "+version)
		p := e2e.Provides(version)
		p["artifact_name"] = name
		d.MustProvide(t, p)
	}

	one := e2e.Release(t, d, "1", "")
	run("sign", "-k", key, one)
	install("1", "shop-1", one)

	two := e2e.ReleaseOver(t, d, "2", one, e2e.Web(t, "1", ""), e2e.Web(t, "2", ""))
	run("modify", "--artifact-name", "renamed", "-k", key, two)
	install("2", "renamed", two)

	three := e2e.Release(t, d, "3", "")
	run("sign", "-k", other, three)
	run("sign", "--force", "-k", key, three)
	install("3", "shop-3", three)

	dir := t.TempDir()
	args := strings.Split(strings.TrimRight(run("dump", "--files", dir, "--meta-data", dir, "--print0-cmdline", e2e.Release(t, d, "4", "")), "\x00\n"), "\x00")
	four := d.Share("again.mender")
	run(append(args, "--output-path", four)...)
	run("sign", "-k", key, four)
	install("4", "shop-4", four)
	d.MustRun(t, "mender-app", "verify", "shop")
}
