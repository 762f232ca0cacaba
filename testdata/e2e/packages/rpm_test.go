package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// A device has the rpm package from a signed repository that createrepo_c made: dnf installs
// it in one line, upgrades, goes back by one version and removes. What the operator has
// configured, and what applications have stored, stays.
func TestRPMRepository(t *testing.T) {
	bed.Require(t, "createrepo_c", "dnf", "rpm", "gpg", "dpkg-deb")
	// This machine has dnf. What it installs is in the device alone.
	d := bed.StartFrom(t, "/")
	p := machine{t, d}
	packages, public, repositories := d.Share("packages"), d.Share("key.asc"), d.Share("repositories")
	require.NoError(t, os.Mkdir(packages, 0o755))
	require.NoError(t, os.Mkdir(repositories, 0o755))
	key := newKeyring(t)
	add := func(version string) {
		t.Helper()
		rpmOf(t, version, packages)
		key.run("createrepo_c", "--quiet", packages)
		key.run("gpg", "--batch", "--yes", "--armor", "--detach-sign", filepath.Join(packages, "repodata/repomd.xml"))
	}
	require.NoError(t, os.WriteFile(public, []byte(key.run("gpg", "--armor", "--export")), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(repositories, "mender-app.repo"), fmt.Appendf(nil,
		"[mender-app]\nname=mender-app\nbaseurl=file://%s\nrepo_gpgcheck=1\ngpgcheck=0\ngpgkey=file://%s\nmetadata_expire=0\n", packages, public), 0o644))
	dnf := func(args ...string) bed.Result {
		t.Helper()
		r, err := d.Run("dnf", append([]string{"--assumeyes", "--releasever", "1", "--setopt=reposdir=" + repositories, "--setopt=install_weak_deps=False"}, args...)...)
		require.NoError(t, err)
		return r
	}
	has := func(version string) {
		t.Helper()
		require.Equal(t, version, d.MustRun(t, "rpm", "--query", "--queryformat", "%{VERSION}", "mender-app"))
		require.Contains(t, d.MustRun(t, "mender-app", "--version"), "mender-app 1.")
		require.Contains(t, d.MustRun(t, "/usr/share/mender/modules/v3/app", "--version"), "app 1.")
	}
	must := func(args ...string) {
		t.Helper()
		r := dnf(args...)
		require.Zero(t, r.Code, r.Output())
	}

	// What the key has not signed is not read.
	add("0.9.0")
	index := filepath.Join(packages, "repodata/repomd.xml")
	signed, err := os.ReadFile(index)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(index, append(signed, '\n'), 0o644))
	require.Contains(t, dnf("--installroot", "/tmp/other", "makecache").Output(), "GPG signature verification error")
	require.NoError(t, os.WriteFile(index, signed, 0o644))

	must("install", "mender-app")
	has("0.9.0")
	require.Equal(t, "600 root:root\n", d.MustRun(t, "stat", "-c", "%a %U:%G", configuration))
	p.write(configuration, shellConfiguration)
	p.write("/data/mender-app/shop/data/kept", "orders")

	add("1.0.0")
	must("upgrade")
	has("1.0.0")
	require.Equal(t, shellConfiguration, p.read(configuration))
	must("downgrade", "mender-app")
	has("0.9.0")
	require.Equal(t, shellConfiguration, p.read(configuration))

	must("remove", "mender-app")
	r, err := d.Run("sh", "-c", "ls /usr/bin/mender-app /usr/share/mender/modules/v3/app /usr/lib/systemd/system/mender-app-*")
	require.NoError(t, err)
	require.Empty(t, r.Stdout, "nothing of the package is left")
	require.Equal(t, shellConfiguration, p.read(configuration+".rpmsave"))
	require.Equal(t, "orders", p.read("/data/mender-app/shop/data/kept"))
}

// rpmOf makes the rpm package of a version in a directory, out of what the deb has.
func rpmOf(t *testing.T, version, dir string) {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	deb := debOf(t, "mender-app")
	out, err := exec.Command("dpkg-deb", "-x", deb, tree).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(filepath.Join(bed.Repository(), "build/tools/nfpm"), "package", "--config", "packaging/nfpm/mender-app.yaml", "--packager", "rpm", "--target", dir)
	cmd.Dir = bed.Repository()
	cmd.Env = append(os.Environ(), "TREE="+tree, "VERSION="+version, "ARCH="+runtime.GOARCH)
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
