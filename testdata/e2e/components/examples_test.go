// Package components tests sub-modules in shell and Python, and the examples of them,
// through the Mender client. make test runs it.
package components

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// example is an application of a sub-module in examples/, with its files unchanged.
type example struct {
	orchestrator string // the sub-module: examples/NAME/NAME
	in           string // where the application is, if not in examples/NAME
	app          string // the application: its manifests are the files of the directory APP
	// content returns the application's component in a version, healthy or not.
	content func(version string, healthy bool) []byte
	kind    string // its type
	url     string
	// runs prints the version that runs on the device.
	runs    []string
	systemd bool // it needs a systemd that runs
}

// rawRelease writes an artifact of components that are files, in the shell
// reference's form.
func rawRelease(t *testing.T, d *bed.Device, e example, version string, content []byte) string {
	t.Helper()
	h := bed.Handmade{Name: e.app + "-" + version, Software: e.app}
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	dir := "images/" + digest
	h.Images = []bed.Member{
		{Name: "images/", Type: tar.TypeDir}, {Name: dir + "/", Type: tar.TypeDir},
		{Name: dir + "/url-new.txt", Data: []byte(e.url + "\n")}, {Name: dir + "/url-current.txt", Data: []byte(e.url + "\n")},
		{Name: dir + "/sums-new.txt", Data: []byte(digest + "\n")}, {Name: dir + "/sums-current.txt", Data: []byte(digest + "\n")},
		{Name: dir + "/image.img", Data: content},
	}
	meta, err := json.Marshal(map[string]any{
		"version": "1.0", "application_name": e.app, "orchestrator": e.orchestrator, "platform": bed.Platform(), "images": []string{digest},
	})
	require.NoError(t, err)
	h.Metadata = string(meta)
	h.Manifests = []bed.Member{{Name: "manifests/", Type: tar.TypeDir}}
	for name, text := range e.manifests(t) {
		h.Manifests = append(h.Manifests, bed.Member{Name: "manifests/" + name, Data: []byte(text)})
	}
	path := d.Share(h.Name + ".mender")
	require.NoError(t, h.Write(path))
	return path
}

// release makes an artifact of the example with app-gen: its component whole, or as
// a delta over each of the files old.
func (e example) release(t *testing.T, d *bed.Device, version string, content []byte, old ...[]byte) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{"new": content}
	component := e.kind + ":" + filepath.Join(dir, "new")
	for i, text := range old {
		name := fmt.Sprint("old-", i+1)
		files[name] = text
		component += "," + filepath.Join(dir, name)
	}
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return e2e.AppGen(t, d, e.app+"-"+version, e.dir(), "--application-name", e.app, "--software-version", version,
		"--orchestrator", e.orchestrator, "--component", component+"="+e.url)
}

// dir is the directory of the example's manifests.
func (e example) dir() string {
	in := e.in
	if in == "" {
		in = e.orchestrator
	}
	return filepath.Join(bed.Repository(), "examples", in, e.app)
}

// manifests are the example's own.
func (e example) manifests(t *testing.T) map[string]string {
	t.Helper()
	files, dir := map[string]string{}, e.dir()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(t, err)
		files[entry.Name()] = string(text)
	}
	return files
}

// live plays the life of an example under the real Mender client: installed whole in
// the shell reference's form, updated by deltas of app-gen's, a release that fails, an update
// that is killed, a rollback by the client and one days later, and a purge. app-conformance finds
// no fault with its sub-module.
func (e example) live(t *testing.T) {
	t.Parallel()
	bed.Require(t, "mender-artifact")
	d := bed.StartWithoutEngine(t)
	if e.systemd {
		d.StartSystemd(t)
	}
	submodule := "/usr/share/mender/app-modules/v1/" + e.orchestrator
	d.MustRun(t, "install", "-m755", filepath.Join(bed.Repository(), "examples", e.orchestrator, e.orchestrator), submodule)
	if e.orchestrator == "systemd" || e.orchestrator == "python" { // the suite rolls out often
		require.NoError(t, os.WriteFile(d.Share("conf"), []byte("stable=0.3\n"), 0o644))
		d.MustRun(t, "cp", d.Share("conf"), "/etc/mender/mender-app-"+e.orchestrator+".conf")
	}
	runs := func() string { return strings.TrimSpace(d.MustRun(t, e.runs[0], e.runs[1:]...)) }
	at := func(version string) {
		t.Helper()
		require.Equal(t, version, runs())
		require.Equal(t, "true\n", d.MustRun(t, submodule, "HEALTHY", e.app))
		require.Contains(t, d.MustRun(t, "mender-app", "list"), e.app+"-"+version)
	}
	one, two := e.content("1", true), e.content("2", true)
	e2e.Mender(t, d, "install", rawRelease(t, d, e, "1", one))
	e2e.Mender(t, d, "commit")
	at("1")
	update := func(version string, healthy bool, old ...[]byte) string {
		t.Helper()
		file := e.release(t, d, version, e.content(version, healthy), old...)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(len(one)), "a delta")
		return file
	}
	e2e.Mender(t, d, "install", update("2", true, one))
	e2e.Mender(t, d, "commit")
	at("2")
	e2e.MenderFails(t, d, "install", update("3", false, two))
	at("2")
	e2e.Killed(t, d, "app ArtifactInstall/called.ROLLOUT:1", "install", update("5", true, two))
	d.MustRun(t, "mender-app", "resume")
	at("2")
	e2e.Mender(t, d, "install", update("4", true, one, two))
	require.Equal(t, "4", runs())
	e2e.Mender(t, d, "rollback")
	at("2")
	d.MustRun(t, "mender-app", "rollback", e.app) // days later
	at("1")
	d.MustRun(t, "mender-app", "stop", e.app)
	require.Contains(t, d.MustRun(t, "mender-app", "list"), "stopped")
	r, err := d.Run(submodule, "ALIVE", e.app)
	require.NoError(t, err)
	require.Equal(t, "false\n", r.Stdout)
	d.MustRun(t, "mender-app", "start", e.app)
	at("1")
	d.MustRun(t, "mender-app", "purge", "--force", "--data", e.app)
	require.Equal(t, "[]\n", d.MustRun(t, submodule, "LIST", e.app))

	files := map[string]string{}
	for i, release := range []string{"good", "better", "bad"} {
		for name, text := range e.manifests(t) {
			files[release+"/manifests/"+name] = text
		}
		files[release+"/components/"+e.url] = string(e.content(fmt.Sprint(i), release != "bad"))
	}
	writeFixture(t, d.Share("fixture"), files)
	require.Greater(t, conforms(t, d, "1.1", "--fixture", d.Share("fixture"), submodule), 150)
	require.Empty(t, strings.TrimSpace(d.MustRun(t, "ls", "/data/"+e.orchestrator)), "nothing is left behind")
}

// hello is the example of a program.
func hello() example {
	return example{
		orchestrator: "executable", app: "hello", kind: "binary", url: "hello",
		content: func(version string, healthy bool) []byte {
			check := "exit 1"
			if healthy {
				check = "exit 0"
			}
			return fmt.Appendf(noise(), "\ncase $1 in --check) %s ;; esac\necho %s >/run/hello\nwhile :; do sleep 1; done\n", check, version)
		},
		runs: []string{"cat", "/run/hello"},
	}
}

func TestExampleExecutable(t *testing.T) { hello().live(t) }

// Under systemd, programs are services. Those of another application stay.
func TestExampleExecutableWithSystemd(t *testing.T) {
	t.Parallel()
	d := bed.StartWithoutEngine(t)
	d.StartSystemd(t)
	d.MustRun(t, "install", "-m755", filepath.Join(bed.Repository(), "examples/executable/executable"), "/usr/share/mender/app-modules/v1/executable")
	e := hello()
	other := e
	other.in, other.app, other.url = "mixed", "agent", "agent"
	other.content = func(string, bool) []byte {
		return []byte("#!/bin/sh\ncase ${1-} in --check) exit 0 ;; esac\nexec sleep 1000\n")
	}
	service := func(app, name string) string { return "mender-app-" + app + ":" + name + ".service" }
	at := func(version string) {
		t.Helper()
		require.Equal(t, version+"\n", d.MustRun(t, "cat", "/run/hello"))
		require.Equal(t, "active\n", d.MustRun(t, "systemctl", "is-active", service("hello", "hello")))
	}
	e2e.Mender(t, d, "install", other.release(t, d, "1", other.content("1", true)))
	e2e.Mender(t, d, "commit")
	first := e.content("1", true)
	e2e.Mender(t, d, "install", e.release(t, d, "1", first))
	e2e.Mender(t, d, "commit")
	at("1")
	require.Equal(t, "enabled\n", d.MustRun(t, "systemctl", "is-enabled", service("hello", "hello")), "it comes back after a restart of the machine")
	e2e.Mender(t, d, "install", e.release(t, d, "2", e.content("2", true), first))
	e2e.Mender(t, d, "commit")
	at("2")
	e2e.MenderFails(t, d, "install", e.release(t, d, "3", e.content("3", false), first, e.content("2", true)))
	at("2")
	d.MustRun(t, "systemctl", "kill", "--signal=KILL", service("hello", "hello"))
	require.Eventually(t, func() bool {
		r, err := d.Run("systemctl", "is-active", service("hello", "hello"))
		return err == nil && r.Code == 0
	}, time.Minute, 100*time.Millisecond, "systemd starts it again")
	d.MustRun(t, "mender-app", "rollback", "hello") // days later
	at("1")
	d.MustRun(t, "mender-app", "stop", "hello")
	r, err := d.Run("systemctl", "is-active", service("hello", "hello"))
	require.NoError(t, err)
	require.NotZero(t, r.Code)
	d.MustRun(t, "mender-app", "start", "hello")
	at("1")
	d.MustRun(t, "mender-app", "purge", "--force", "hello")
	require.Equal(t, "/etc/systemd/system/"+service("agent", "agent")+"\n", d.MustRun(t, "sh", "-c", "ls /etc/systemd/system/mender-app-*:*"))
	require.Equal(t, "active\n", d.MustRun(t, "systemctl", "is-active", service("agent", "agent")))
}

// noise begins a shell script with a comment that no compressor makes smaller than
// a delta is, and that is the same in each version.
func noise() []byte {
	random := make([]byte, 24<<10)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(random)
	return fmt.Appendf(nil, "#!/bin/sh\n# %s", base64.StdEncoding.EncodeToString(random))
}

// Two applications that belong together: one of containers, and one on the host.
func TestExampleMixed(t *testing.T) {
	d := e2e.Device(t)
	dir := filepath.Join(bed.Repository(), "examples")
	d.MustRun(t, "install", "-m755", filepath.Join(dir, "executable/executable"), "/usr/share/mender/app-modules/v1/executable")
	text, err := os.ReadFile(filepath.Join(dir, "mixed/gateway/compose.yaml"))
	require.NoError(t, err)
	gateway := e2e.Generate(t, d, "gateway", "gateway-1", "1", string(text), "--policy", filepath.Join(dir, "mixed/gateway/app.toml"),
		e2e.Archive(t, e2e.Build(t, bed.Shop{Ref: "shop/web:1", Version: "1"})))
	agent := example{orchestrator: "executable", in: "mixed", app: "agent", kind: "binary", url: "agent"}
	content := func(version, check string) []byte {
		return fmt.Appendf(noise(), "\ncase ${1-} in --check) %s ;; esac\nmkdir -p /run/agent\necho %s >/run/agent/version\nexec sleep 1000\n", check, version)
	}
	release := func(version, check string) string { // a delta, but for the first
		if version == "1" {
			return agent.release(t, d, version, content(version, check))
		}
		return agent.release(t, d, version, content(version, check), content("1", "exit 0"))
	}
	before := d.MustState(t)
	said := e2e.MenderFails(t, d, "install", gateway)
	require.Contains(t, said, "agent")
	require.Equal(t, before.Images, d.MustState(t).Images, "nothing was loaded")
	e2e.Mender(t, d, "install", release("1", "exit 0"))
	e2e.Mender(t, d, "commit")
	e2e.Mender(t, d, "install", gateway)
	e2e.Mender(t, d, "commit")
	web := d.MustState(t).Service("gateway", "web")
	require.Equal(t, "running", web.Status)
	agents := func() string { return strings.TrimSpace(d.MustRun(t, "cat", "/run/agent/version")) }
	require.Equal(t, "1", agents())
	e2e.MenderFails(t, d, "install", release("2", "exit 1"))
	require.Equal(t, "1", agents())
	e2e.Mender(t, d, "install", release("3", "exit 0"))
	e2e.Mender(t, d, "commit")
	require.Equal(t, "3", agents())
	d.MustRun(t, "mender-app", "rollback", "agent") // days later
	require.Equal(t, "1", agents())
	require.Equal(t, web, d.MustState(t).Service("gateway", "web"), "the gateway runs on")
	for _, app := range []string{"gateway", "agent"} {
		d.MustRun(t, "mender-app", "purge", "--force", "--data", app)
	}
	require.Empty(t, d.MustState(t).Containers)
}

func TestExamplePython(t *testing.T) {
	bed.Require(t, "python3")
	example{
		orchestrator: "python", app: "greeter", kind: "python-package", url: "greeter",
		content: func(version string, healthy bool) []byte { return wheel(t, version, healthy) },
		runs:    []string{"cat", "/run/greeter"},
	}.live(t)
}

// A service of a Python application is a process, or a systemd service: whoever ends it is
// noticed, and START brings it back.
func TestExamplePythonRuns(t *testing.T) {
	for name, systemd := range map[string]bool{"processes": false, "systemd": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := bed.StartWithoutEngine(t)
			if systemd {
				d.StartSystemd(t)
			}
			submodule := "/usr/share/mender/app-modules/v1/python"
			d.MustRun(t, "install", "-m755", filepath.Join(bed.Repository(), "examples/python/python"), submodule)
			e := example{orchestrator: "python", app: "greeter", kind: "python-package", url: "greeter"}
			e2e.Mender(t, d, "install", e.release(t, d, "1", wheel(t, "1", true)))
			e2e.Mender(t, d, "commit")
			pids := func() string {
				r, err := d.Run("pgrep", "-f", "greeter serve")
				require.NoError(t, err)
				return strings.TrimSpace(r.Stdout)
			}
			alive := func() string {
				r, err := d.Run(submodule, "ALIVE", "greeter")
				require.NoError(t, err)
				return r.Stdout
			}
			require.Equal(t, "true\n", alive())
			first := pids()
			require.NotEmpty(t, first)
			manifests := "/data/mender-app/greeter/manifests"
			d.MustRun(t, submodule, "START", "greeter", manifests)
			require.Equal(t, first, pids(), "what runs and did not change is not touched")
			if !systemd { // which starts it again by itself
				d.MustRun(t, "kill", "-9", first)
				require.Equal(t, "false\n", alive())
				d.MustRun(t, submodule, "START", "greeter", manifests)
				require.NotEqual(t, first, pids())
			}
			require.Equal(t, "true\n", alive())
			d.MustRun(t, submodule, "STOP", "greeter", manifests)
			require.Equal(t, "false\n", alive())
			require.Empty(t, pids())
			d.MustRun(t, submodule, "START", "greeter", manifests)
			require.NotEmpty(t, pids())
			d.MustRun(t, "mender-app", "purge", "--force", "greeter")
			require.Empty(t, pids())
			require.Empty(t, d.MustRun(t, "sh", "-c", "ls /etc/systemd/system | grep greeter || true"))
		})
	}
}

// wheel is a wheel of the package greeter. A wheel is a zip archive with a list of
// its files (packaging.python.org, "Binary distribution format").
func wheel(t *testing.T, version string, healthy bool) []byte {
	t.Helper()
	code := 1
	if healthy {
		code = 0
	}
	info := "greeter-" + version + ".dist-info/"
	files := map[string]string{
		"greeter/__init__.py": strings.ReplaceAll(string(noise()), "#!/bin/sh\n", "") + "\n",
		"greeter/__main__.py": fmt.Sprintf("import sys\nimport time\nif sys.argv[1:] == ['check']:\n    sys.exit(%d)\nopen('/run/greeter', 'w').write(%q)\nwhile True:\n    time.sleep(1)\n", code, version),
		info + "METADATA":     "Metadata-Version: 2.1\nName: greeter\nVersion: " + version + "\n",
		info + "WHEEL":        "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	}
	names := slices.Sorted(maps.Keys(files))
	record := ""
	for _, name := range names {
		sum := sha256.Sum256([]byte(files[name]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
	}
	files[info+"RECORD"] = record + info + "RECORD,,\n"
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range append(names, info+"RECORD") {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write([]byte(files[name]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}
