// Package packages tests the packages as they are installed, on bare trees of Debian with
// its engine, from files and from repositories: in one line, upgraded and downgraded in an
// open update, removed and purged. Formats other than deb and rpm have the same content and
// the same scripts.
package packages

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// suites are the trees of testdata/engines/setup.
var suites = []struct {
	name    string
	compose bool // the suite has Compose v2
}{{"bookworm-engine", false}, {"trixie", true}, {"sid", true}}

// shellConfiguration is that of a device that has the shell module.
const shellConfiguration = "PERSISTENT_STORE=/data/mender-app\n"

const configuration = "/etc/mender/mender-app.conf"

func TestPackages(t *testing.T) {
	for _, suite := range suites {
		t.Run(suite.name, func(t *testing.T) {
			t.Parallel()
			d, p := startSuite(t, suite.name, suite.compose)
			deb := p.share("mender-app")

			// A device with the shell module as a package, and its configuration.
			old := p.shellModule()
			d.MustRun(t, "dpkg", "-i", old)
			p.write(configuration, shellConfiguration)
			p.apt("install", deb)
			require.Equal(t, shellConfiguration, p.read(configuration), "the operator's configuration stays")
			require.Contains(t, d.MustRun(t, "/usr/share/mender/modules/v3/app", "--version"), "app 1.")
			r, err := d.Run("dpkg-query", "-s", "app-update-module")
			require.NoError(t, err)
			require.Contains(t, r.Output(), "is not installed", "the shell module is replaced")
			require.NotContains(t, d.MustRun(t, "sh", "-c", "ls /etc/mender"), "adopted")

			// One command runs an application that was made elsewhere.
			public, releases := p.releases()
			d.MustRun(t, "mender-app", "install", "--key", public, "--commit", releases[0])
			p.runs("shop-1", "shop/web:1")

			// A newer version of the programs goes on with what an older one has begun, and an
			// older one with what a newer one has begun.
			d.MustRun(t, "mender-app", "install", "--key", public, releases[1])
			p.write(configuration, shellConfiguration+"keep=2\n")
			newer := p.repack(deb, "9:2", func(string) {})
			p.apt("install", newer)
			require.Equal(t, "9:2", d.MustRun(t, "dpkg-query", "-W", "-f", "${Version}", "mender-app"))
			require.Equal(t, shellConfiguration+"keep=2\n", p.read(configuration))
			d.MustRun(t, "mender-app", "commit")
			p.runs("shop-2", "shop/web:2")
			d.MustRun(t, "mender-app", "rollback", "shop")
			d.MustRun(t, "mender-app", "install", "--key", public, releases[1])
			p.apt("install", "--allow-downgrades", deb)
			d.MustRun(t, "mender-app", "rollback")
			p.runs("shop-1", "shop/web:1")

			// Without the package the application runs on, and a new installation knows it.
			p.apt("remove", "mender-app")
			r, err = d.Run("sh", "-c", "ls /usr/bin/mender-app /usr/share/mender/modules/v3/app /usr/lib/systemd/system/mender-app-*")
			require.NoError(t, err)
			require.NotZero(t, r.Code, r.Output())
			require.Empty(t, r.Stdout, "nothing of the package is left")
			require.Equal(t, shellConfiguration+"keep=2\n", p.read(configuration))
			require.Contains(t, d.MustRun(t, "docker", "ps", "--format", "{{.Image}}"), "shop/web:1")
			p.apt("install", deb)
			p.runs("shop-1", "shop/web:1")

			// A purge takes the configuration, and leaves what applications have stored.
			require.Contains(t, p.apt("purge", "mender-app"), "the applications and their data stay")
			require.NoFileExists(t, d.Path(configuration))
			require.Contains(t, d.MustRun(t, "docker", "ps", "--format", "{{.Image}}"), "shop/web:1")
			p.apt("install", deb, p.share("mender-app-k8s"), p.share("mender-app-gen"), p.share("mender-app-submodules"))
			p.runs("shop-1", "shop/web:1")
			require.Equal(t, "600 root:root\n", d.MustRun(t, "stat", "-c", "%a %U:%G", configuration))
			require.Contains(t, d.MustRun(t, "/usr/share/mender/app-modules/v1/k8s", "--version"), "k8s 1.")
			for _, name := range []string{"deb", "systemd", "executable"} { // python needs Python, which a bare tree has not
				require.Contains(t, d.MustRun(t, "/usr/share/mender/app-modules/v1/"+name, "PROTOCOL"), `"`+name+`"`)
			}
			require.Contains(t, d.MustRun(t, "app-gen", "--version"), "app-gen 1.")
			require.Empty(t, d.MustRun(t, "dpkg", "--verify", "mender-app"), "every file is as it was packed")
		})
	}
}

// lintian, which reviews packages for Debian, finds nothing.
func TestLintian(t *testing.T) {
	bed.Require(t, "lintian")
	for _, name := range []string{"mender-app", "mender-app-k8s", "mender-app-gen", "mender-app-submodules"} {
		out, err := exec.Command("lintian", "--allow-root", "--pedantic", "--fail-on", "pedantic,info,warning,error", debOf(t, name)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// debOf is the package of a name, made from this tree.
func debOf(t *testing.T, name string) string {
	t.Helper()
	dir, err := bed.Packages()
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

type machine struct {
	t *testing.T
	d *bed.Device
}

// apt runs apt-get as a script does that nobody watches. It needs no archive.
func (m machine) apt(verb string, args ...string) string {
	m.t.Helper()
	r, err := m.d.Run("env", append([]string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "--no-install-recommends", verb}, args...)...)
	require.NoError(m.t, err)
	require.Zero(m.t, r.Code, "%s", r.Output())
	return r.Output()
}

func (m machine) read(path string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.d.Path(path))
	require.NoError(m.t, err)
	return string(data)
}

func (m machine) write(path, text string) {
	m.t.Helper()
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.d.Path(path)), 0o755))
	require.NoError(m.t, os.WriteFile(m.d.Path(path), []byte(text), 0o600))
}

// copy gives the device a file of this machine.
func (m machine) copy(from, to string) {
	m.t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(m.t, err)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.d.Path(to)), 0o755))
	require.NoError(m.t, os.WriteFile(m.d.Path(to), data, 0o755))
}

// share puts a package where the device can read it.
func (m machine) share(name string) string {
	m.t.Helper()
	path := m.d.Share(filepath.Base(debOf(m.t, name)))
	m.copy(debOf(m.t, name), path)
	return path
}

// shellModule makes a package that has the path of the update module.
func (m machine) shellModule() string {
	m.t.Helper()
	tree := m.t.TempDir()
	for name, text := range map[string]string{
		"DEBIAN/control":                  "Package: app-update-module\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: the shell module\n",
		"usr/share/mender/modules/v3/app": "#!/bin/sh\n",
	} {
		require.NoError(m.t, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
		require.NoError(m.t, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o755))
	}
	return m.build(tree, "app-update-module.deb")
}

// repack gives a package another version, and changes its tree.
func (m machine) repack(deb, version string, change func(tree string)) string {
	m.t.Helper()
	tree := filepath.Join(m.t.TempDir(), "tree")
	out, err := exec.Command("dpkg-deb", "-R", deb, tree).CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	control, err := os.ReadFile(filepath.Join(tree, "DEBIAN/control"))
	require.NoError(m.t, err)
	before, rest, _ := strings.Cut(string(control), "\nVersion: ")
	_, after, _ := strings.Cut(rest, "\n")
	require.NoError(m.t, os.WriteFile(filepath.Join(tree, "DEBIAN/control"), []byte(before+"\nVersion: "+version+"\n"+after), 0o644))
	change(tree)
	return m.build(tree, "mender-app_"+strings.ReplaceAll(version, ":", "_")+".deb")
}

func (m machine) build(tree, name string) string {
	m.t.Helper()
	path := m.d.Share(name)
	out, err := exec.Command("dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, path).CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	return path
}

// releases makes two releases of the shop, signed, and the public key.
func (m machine) releases() (public string, artifacts []string) {
	m.t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(m.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(m.t, err)
	der, err := x509.MarshalPKIXPublicKey(pub)
	require.NoError(m.t, err)
	keyFile := filepath.Join(m.t.TempDir(), "key.pem")
	require.NoError(m.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	public = m.d.Share("key.pub")
	require.NoError(m.t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644))
	for _, v := range []string{"1", "2"} {
		compose := fmt.Sprintf("services:\n  web:\n    image: shop/web:%s\n    network_mode: none\n    stop_grace_period: 2s\n", v)
		artifacts = append(artifacts, e2e.Generate(m.t, m.d, "shop", "shop-"+v, v, compose, e2e.Archive(m.t, e2e.Web(m.t, v, "")), "--key", keyFile))
	}
	return public, artifacts
}

// runs requires that this release of the shop runs and is known to.
func (m machine) runs(artifact, image string) {
	m.t.Helper()
	var status []struct {
		State    string `json:"state"`
		Health   string `json:"health"`
		Artifact string `json:"artifact_name"`
	}
	out := m.d.MustRun(m.t, "mender-app", "status", "--json")
	require.NoError(m.t, json.Unmarshal([]byte(out), &status), out)
	require.Len(m.t, status, 1)
	require.Equal(m.t, "installed healthy "+artifact, status[0].State+" "+status[0].Health+" "+status[0].Artifact, out)
	require.Equal(m.t, image+"\n", m.d.MustRun(m.t, "docker", "ps", "--format", "{{.Image}}"))
}
