package components

import (
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

// debian is a Debian package for a test.
type debian struct {
	name, version string
	depends       string
	files         map[string]string // by their paths; those below etc/ are its configuration
}

// build makes the package, without compression so that a delta finds its old content.
func (p debian) build(t *testing.T) []byte {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("this test needs dpkg")
	}
	dir := t.TempDir()
	root, conffiles := filepath.Join(dir, "root"), ""
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
	}
	for name, text := range p.files {
		mode := os.FileMode(0o755)
		if strings.HasPrefix(name, "etc/") {
			conffiles, mode = conffiles+"/"+name+"\n", 0o644
		}
		write(name, text, mode)
	}
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: A test <test@example.com>\nDescription: a test\n", p.name, p.version)
	if p.depends != "" {
		control += "Depends: " + p.depends + "\n"
	}
	write("DEBIAN/control", control, 0o644)
	if conffiles != "" {
		write("DEBIAN/conffiles", conffiles, 0o644)
	}
	file := filepath.Join(dir, "p.deb")
	cmd := exec.Command("dpkg-deb", "-Znone", "--root-owner-group", "--build", root, file)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1") // the same package has the same bytes
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}

// helloPackage is the example's package: a program and its configuration.
func helloPackage(t *testing.T, version string, healthy bool) debian {
	check := "exit 1"
	if healthy {
		check = "exit 0"
	}
	return debian{name: "hello-mender", version: version, files: map[string]string{
		"usr/bin/hello-mender":  string(fmt.Appendf(noise(), "\ncase ${1-} in --check) %s ;; esac\necho %s\n", check, version)),
		"etc/hello-mender.conf": "greeting=of-" + version + "\n",
	}}
}

func TestExampleDeb(t *testing.T) {
	example{
		orchestrator: "deb", app: "hello", kind: "deb-package", url: "hello-mender",
		content: func(version string, healthy bool) []byte { return helloPackage(t, version, healthy).build(t) },
		runs:    []string{"hello-mender"},
	}.live(t)
}

// packages is an artifact of packages, each a component.
func packages(t *testing.T, d *bed.Device, app, version string, list ...debian) string {
	t.Helper()
	dir := t.TempDir()
	manifests, names := filepath.Join(dir, "manifests"), ""
	args := []string{"--application-name", app, "--software-version", version, "--orchestrator", "deb"}
	for _, p := range list {
		file := filepath.Join(dir, p.name)
		require.NoError(t, os.WriteFile(file, p.build(t), 0o644))
		args = append(args, "--component", "deb-package:"+file+"="+p.name)
		names += p.name + "\n"
	}
	require.NoError(t, os.MkdirAll(manifests, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "packages"), []byte(names), 0o644))
	return e2e.AppGen(t, d, app+"-"+version, manifests, args...)
}

// Packages come with their dependencies and go back with their configuration. What belongs
// to the system is not replaced, and what could not work is not begun.
func TestDebDependenciesAndConfiguration(t *testing.T) {
	t.Parallel()
	d := bed.StartWithoutEngine(t)
	submodule := "/usr/share/mender/app-modules/v1/deb"
	d.MustRun(t, "install", "-m755", filepath.Join(bed.Repository(), "examples/deb/deb"), submodule)
	library := func(version string) debian {
		return debian{name: "mender-greeting", version: version, files: map[string]string{"usr/share/mender-greeting": version + "\n"}}
	}
	hello := func(version, needs string) debian {
		p := helloPackage(t, version, true)
		p.depends = "mender-greeting (>= " + needs + ")"
		return p
	}
	state := func() string {
		return d.MustRun(t, "sh", "-c", "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n' 'hello-mender' 'mender-greeting' 2>/dev/null; cat /etc/hello-mender.conf; dpkg --audit")
	}
	said := e2e.MenderFails(t, d, "install", packages(t, d, "hello", "0", hello("0", "1")))
	require.Contains(t, said, "depends on mender-greeting")
	r, err := d.Run("dpkg-query", "-W", "hello-mender")
	require.NoError(t, err)
	require.NotZero(t, r.Code, "nothing was installed: %s", r.Output())

	e2e.Mender(t, d, "install", packages(t, d, "hello", "1", hello("1", "1"), library("1")))
	e2e.Mender(t, d, "commit")
	d.MustRun(t, "sh", "-c", "echo greeting=my-own >/etc/hello-mender.conf")
	before := state()
	require.Contains(t, before, "hello-mender 1 ii")
	require.Contains(t, before, "my-own")
	e2e.Mender(t, d, "install", packages(t, d, "hello", "2", hello("2", "2"), library("2")))
	require.Contains(t, state(), "my-own", "an update keeps what somebody has configured")
	d.MustRun(t, "sh", "-c", "echo greeting=of-two >/etc/hello-mender.conf")
	e2e.Mender(t, d, "rollback")
	require.Equal(t, before, state(), "the versions and their configuration of before")

	// Killed in the middle of dpkg: the client's next call goes back.
	three := packages(t, d, "hello", "3", hello("3", "1"), library("3"))
	e2e.Killed(t, d, "app ArtifactInstall/call.ROLLOUT:1", "install", three)
	d.MustRun(t, "mender-app", "resume")
	require.Equal(t, before, state())

	// Another application may bring the same package in the same version, and no other one.
	e2e.Mender(t, d, "install", packages(t, d, "other", "1", library("1")))
	e2e.Mender(t, d, "commit")
	said = e2e.MenderFails(t, d, "install", packages(t, d, "other", "2", library("2")))
	require.Contains(t, said, "the application hello has another version of it")
	require.Equal(t, before, state())
	d.MustRun(t, "mender-app", "purge", "--force", "hello")
	require.Equal(t, "1\n", d.MustRun(t, "cat", "/usr/share/mender-greeting"), "the other application needs it")

	// The system's own packages stay.
	said = e2e.MenderFails(t, d, "install", packages(t, d, "third", "1", debian{name: "hostname", version: "99", files: map[string]string{"usr/share/third": "x"}}))
	require.Contains(t, said, "hostname: the system has version")
	d.MustRun(t, "mender-app", "purge", "--force", "other")
	require.NotContains(t, d.MustRun(t, "sh", "-c", "dpkg --get-selections"), "mender-greeting\tinstall")
	require.Empty(t, d.MustRun(t, "dpkg", "--audit"))
}

func TestExampleSystemd(t *testing.T) {
	e := hello()
	e.orchestrator, e.systemd = "systemd", true
	e.live(t)
}

// Units of the system are not replaced, a unit that did not change runs on, and one that the
// release no longer has goes.
func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	d := bed.StartWithoutEngine(t)
	d.StartSystemd(t)
	submodule := "/usr/share/mender/app-modules/v1/systemd"
	d.MustRun(t, "install", "-m755", filepath.Join(bed.Repository(), "examples/systemd/systemd"), submodule)
	unit := func(more string) string {
		return "[Service]\nExecStart=@dir@/tool " + more + "\n[Install]\nWantedBy=multi-user.target\n"
	}
	release := func(version, tool string, units map[string]string) string {
		dir := t.TempDir()
		for name, text := range units {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "m"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "m", name), []byte(text), 0o644))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tool"), []byte(tool), 0o755))
		return e2e.AppGen(t, d, "tools-"+version, filepath.Join(dir, "m"), "--application-name", "tools", "--software-version", version,
			"--orchestrator", "systemd", "--component", "binary:"+filepath.Join(dir, "tool")+"=tool")
	}
	const tool = "#!/bin/sh\nexec sleep 1000\n"
	pid := func(unit string) string {
		return strings.TrimSpace(d.MustRun(t, "systemctl", "show", "--property=MainPID", "--value", unit))
	}
	once := "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
	e2e.Mender(t, d, "install", release("1", tool, map[string]string{"tools-a.service": unit("a"), "tools-b.service": unit("b"), "tools-once.service": once}))
	e2e.Mender(t, d, "commit")
	a, b := pid("tools-a.service"), pid("tools-b.service")
	e2e.Mender(t, d, "install", release("2", tool, map[string]string{"tools-a.service": unit("a"), "tools-b.service": unit("other"), "tools-once.service": once}))
	e2e.Mender(t, d, "commit")
	require.Equal(t, a, pid("tools-a.service"), "it did not change")
	require.NotEqual(t, b, pid("tools-b.service"))
	e2e.Mender(t, d, "install", release("3", tool, map[string]string{"tools-a.service": unit("a")}))
	require.Equal(t, a, pid("tools-a.service"))
	r, err := d.Run("systemctl", "cat", "tools-b.service")
	require.NoError(t, err)
	require.NotZero(t, r.Code, "%s", r.Output())
	e2e.Mender(t, d, "rollback")
	d.MustRun(t, "systemctl", "is-active", "tools-b.service")
	require.Equal(t, a, pid("tools-a.service"))

	said := e2e.MenderFails(t, d, "install", release("4", tool, map[string]string{"systemd-journald.service": unit("x")}))
	require.Contains(t, said, "systemd-journald.service is not the application's")
	said = e2e.MenderFails(t, d, "install", release("5", "#!/bin/sh\nexit 3\n", map[string]string{"tools-a.service": unit("a")}))
	require.Contains(t, said, "tools is not healthy")
	e2e.Killed(t, d, "app ArtifactInstall/called.ROLLOUT:1", "install", release("6", tool, map[string]string{"tools-a.service": unit("six")}))
	d.MustRun(t, "mender-app", "resume")
	for _, unit := range []string{"tools-a.service", "tools-b.service"} {
		d.MustRun(t, "systemctl", "is-active", unit)
	}
	require.Equal(t, "true\n", d.MustRun(t, submodule, "HEALTHY", "tools"))
	d.MustRun(t, "mender-app", "purge", "--force", "tools")
	require.Empty(t, d.MustRun(t, "sh", "-c", "ls /etc/systemd/system | grep tools || true"))
}
