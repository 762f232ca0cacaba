package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// distributions is what reprepro has to know, as docs/INSTALL.md has it: it keeps one version
// of a package in each distribution.
const distributions = `Codename: stable
Components: main
Architectures: armhf arm64 amd64 riscv64
SignWith: yes

Codename: previous
Components: main
Architectures: armhf arm64 amd64 riscv64
SignWith: yes
`

// older is the version of the package with the programs of an earlier commit.
const older = "0.9-1"

// compose is a release of the shop, with data and without a network.
const compose = `services:
  web:
    image: shop/web:%s
    network_mode: none
    stop_grace_period: 2s
  stock:
    image: shop/stock:1
    network_mode: none
    stop_grace_period: 2s
    volumes: ["counts:/var/shop"]
volumes:
  counts:
`

// A device has its packages from a signed repository that reprepro made: it installs in one
// line, upgrades while an update works, and after it, goes back by one version, removes and
// purges. The older package has the programs of an earlier commit. Data stays until somebody
// asks to remove it.
func TestDebianRepository(t *testing.T) {
	bed.Require(t, "reprepro", "gpg", "dpkg-deb")
	install, err := os.ReadFile(filepath.Join(bed.Repository(), "docs/INSTALL.md"))
	require.NoError(t, err)
	require.Contains(t, unindented(string(install)), distributions)
	for _, suite := range suites {
		t.Run(suite.name, func(t *testing.T) {
			t.Parallel()
			d, p := startSuite(t, suite.name, suite.compose)
			r := newRepository(t, d)
			newer := debOf(t, "mender-app")
			r.add("stable", p.olderPackage(newer))

			// What the key has not signed is not installed.
			p.write("/etc/apt/sources.list.d/mender-app.list", source)
			release := d.Path(published + "/dists/stable/InRelease")
			signed, err := os.ReadFile(release)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(release, bytes.Replace(signed, []byte("stable"), []byte("stavle"), 1), 0o644))
			said, err := d.Run("apt-get", "-q", "update")
			require.NoError(t, err)
			require.Contains(t, said.Output(), "is not signed")
			said, err = d.Run("apt-get", "-y", "install", "mender-app")
			require.NoError(t, err)
			require.NotZero(t, said.Code, said.Output())
			require.NoError(t, os.WriteFile(release, signed, 0o644))

			install := "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends install mender-app"
			d.MustRun(t, "sh", "-c", install)
			p.has(older)
			one := e2e.OlderRelease(t, d, "1", fmt.Sprintf(compose, "1"))
			two := e2e.OlderRelease(t, d, "2", fmt.Sprintf(compose, "2"))
			d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", one)
			p.shop("1", "")

			// A new version arrives while an older app works, and has not started anything yet:
			// it goes on with the new programs beside it.
			ended := p.stopsAt("app ArtifactInstall/enter.installing:1", "mender-app", "install", "--unsigned", two)
			p.shop("1", "loaded")
			r.copy("previous", "stable")
			r.add("stable", newer)
			upgrade := "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -y upgrade"
			d.MustRun(t, "sh", "-c", upgrade)
			p.hasNot(older)
			ended()
			p.shop("2", "installed")
			d.MustRun(t, "mender-app", "rollback")
			p.shop("1", "")

			// It goes back by one version, which ends what the newer one has begun, and the
			// other way round.
			d.MustRun(t, "mender-app", "install", "--unsigned", two)
			p.apt("install", "--allow-downgrades", "mender-app/previous")
			p.has(older)
			p.shop("2", "installed")
			d.MustRun(t, "mender-app", "commit")
			p.shop("2", "")
			d.MustRun(t, "mender-app", "rollback", "shop")
			d.MustRun(t, "mender-app", "install", "--unsigned", two)
			d.MustRun(t, "sh", "-c", upgrade)
			p.hasNot(older)
			p.shop("2", "installed")
			d.MustRun(t, "mender-app", "commit")
			p.shop("2", "")

			// Killed before it has started anything, it is settled by the other version.
			p.apt("install", "--allow-downgrades", "mender-app/previous")
			three := e2e.OlderRelease(t, d, "3", fmt.Sprintf(compose, "3"), "--base", two)
			killed, err := d.Run("env", "MENDER_APP_FAULT=app ArtifactInstall/enter.installing:1:kill-both", "mender-app", "install", "--unsigned", three)
			require.NoError(t, err)
			require.NotZero(t, killed.Code, killed.Output())
			d.MustRun(t, "sh", "-c", upgrade)
			d.MustRun(t, "mender-app", "resume")
			p.shop("2", "")

			// Neither remove nor purge touches the application. A person does.
			p.apt("remove", "mender-app")
			require.Equal(t, "shop/stock:1\nshop/web:2\n", d.MustRun(t, "sh", "-c", "docker ps --format '{{.Image}}' | sort"))
			d.MustRun(t, "sh", "-c", install)
			p.shop("2", "")
			p.apt("purge", "mender-app")
			require.Equal(t, "shop/stock:1\nshop/web:2\n", d.MustRun(t, "sh", "-c", "docker ps --format '{{.Image}}' | sort"))
			require.Equal(t, "shop_counts\n", d.MustRun(t, "docker", "volume", "ls", "--quiet"))
			d.MustRun(t, "sh", "-c", install)
			p.shop("2", "")
			d.MustRun(t, "mender-app", "purge", "--force", "--data", "shop")
			p.apt("purge", "mender-app")
			require.Empty(t, d.MustRun(t, "docker", "ps", "--all", "--quiet"))
			require.Empty(t, d.MustRun(t, "docker", "volume", "ls", "--quiet"))
		})
	}
}

// unindented takes the four spaces of a block away from each line.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "    ")
	}
	return strings.Join(lines, "\n")
}

// startSuite starts a device out of a tree of Debian, with its engine.
func startSuite(t *testing.T, name string, compose bool) (*bed.Device, machine) {
	t.Helper()
	tree, err := bed.EngineTree(name)
	require.NoError(t, err)
	d := bed.StartFrom(t, tree)
	p := machine{t, d}
	if !compose { // as Docker's own package for that suite brings it
		const plugin = "/usr/libexec/docker/cli-plugins/docker-compose"
		p.copy(plugin, plugin)
	}
	require.NoError(t, d.StartEngine())
	return d, p
}

// What a web server would have, and the public key, in the device.
const published, publicKey = "/srv/packages", "/srv/packages.asc"

// source is what apt has to know of the repository.
const source = "deb [signed-by=" + publicKey + "] file:" + published + " stable main\n" +
	"deb [signed-by=" + publicKey + "] file:" + published + " previous main\n"

// repository is one that reprepro makes, in a device.
type repository struct {
	keyring
	d *bed.Device
}

func newRepository(t *testing.T, d *bed.Device) repository {
	t.Helper()
	r := repository{newKeyring(t), d}
	require.NoError(t, os.MkdirAll(d.Path(published), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(r.home, "conf"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(r.home, "conf/distributions"), []byte(distributions), 0o644))
	require.NoError(t, os.WriteFile(d.Path(publicKey), []byte(r.run("gpg", "--armor", "--export")), 0o644))
	r.reprepro("export")
	return r
}

func (r repository) add(distribution, deb string) { r.reprepro("includedeb", distribution, deb) }

func (r repository) copy(to, from string) { r.reprepro("copy", to, from, "mender-app") }

func (r repository) reprepro(args ...string) {
	r.run("reprepro", append([]string{"--basedir", r.home, "--outdir", r.d.Path(published)}, args...)...)
}

// keyring is what signs a repository: the directory of gpg with one key.
type keyring struct {
	t    *testing.T
	home string
}

func newKeyring(t *testing.T) keyring {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // the path of a socket must be short
	require.NoError(t, err)
	k := keyring{t, home}
	t.Cleanup(func() {
		k.run("gpgconf", "--kill", "all")
		require.NoError(t, os.RemoveAll(home))
	})
	k.run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "packages@example.com", "ed25519", "sign", "never")
	return k
}

// run runs a program that may sign, and returns what it prints.
func (k keyring) run(name string, args ...string) string {
	k.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GNUPGHOME="+k.home)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(k.t, err, "%s %s\n%s", name, strings.Join(args, " "), said.String())
	return string(out)
}

// olderPackage is a package with the programs of an earlier commit.
func (m machine) olderPackage(deb string) string {
	m.t.Helper()
	return m.repack(deb, older, func(tree string) {
		for program, place := range map[string]string{
			"app": "usr/share/mender/modules/v3", "docker-compose": "usr/share/mender/app-modules/v1", "mender-app": "usr/bin",
		} {
			data, err := os.ReadFile(filepath.Join(e2e.OlderPrograms(m.t), program))
			require.NoError(m.t, err)
			require.NoError(m.t, os.WriteFile(filepath.Join(tree, place, program), data, 0o755))
		}
	})
}

// version is that of the installed package.
func (m machine) version() string {
	m.t.Helper()
	return m.d.MustRun(m.t, "dpkg-query", "-W", "-f", "${Version}", "mender-app")
}

func (m machine) has(version string)    { m.t.Helper(); require.Equal(m.t, version, m.version()) }
func (m machine) hasNot(version string) { m.t.Helper(); require.NotEqual(m.t, version, m.version()) }

// shop requires that this version of the shop runs, in this phase of an open deployment; ""
// is none.
func (m machine) shop(version, phase string) {
	m.t.Helper()
	require.Equal(m.t, "shop/stock:1\nshop/web:"+version+"\n", m.d.MustRun(m.t, "sh", "-c", "docker ps --format '{{.Image}}' | sort"))
	var app struct {
		Current    string `json:"current"`
		Deployment *struct {
			Phase string `json:"phase"`
		} `json:"deployment"`
	}
	require.NoError(m.t, json.Unmarshal([]byte(m.read("/data/mender-app/shop/app.json")), &app))
	if phase != "" {
		require.NotNil(m.t, app.Deployment)
		require.Equal(m.t, phase, app.Deployment.Phase)
		return
	}
	require.Nil(m.t, app.Deployment)
	require.True(m.t, strings.HasSuffix(app.Current, "-shop-"+version), app.Current)
	m.d.MustRun(m.t, "mender-app", "verify", "shop")
}

// stopsAt runs a command until it waits at a point. ended lets it go on, and requires that
// it succeeds.
func (m machine) stopsAt(point string, command ...string) (ended func()) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	m.t.Cleanup(cancel)
	cmd := m.d.Command(ctx, command[0], command[1:]...)
	cmd.Env = append(cmd.Env, "MENDER_APP_FAULT="+point+":stop")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(m.t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var pid string
	bed.Eventually(m.t, 5*time.Minute, "the command waits at "+point, func() bool {
		select {
		case err := <-done:
			m.t.Fatalf("it ended: %v\n%s", err, out.String())
		default:
		}
		r, err := m.d.Run("bash", "-c", `grep -lsE '^State:\s+T' /proc/[0-9]*/status`)
		require.NoError(m.t, err)
		pid = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(r.Stdout), "/proc/"), "/status")
		return pid != ""
	})
	return func() {
		m.t.Helper()
		m.d.MustRun(m.t, "sh", "-c", "kill -CONT "+pid)
		require.NoError(m.t, <-done, "%s", &out)
	}
}
