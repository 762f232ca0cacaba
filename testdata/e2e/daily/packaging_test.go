package daily

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// make install puts every program in its place and keeps an existing configuration;
// make uninstall removes everything but the configuration.
func TestInstallAndUninstall(t *testing.T) {
	programs, err := bed.Programs()
	require.NoError(t, err)
	root := t.TempDir()
	target := func(goal string) {
		t.Helper()
		out, err := exec.Command("make", "-s", "-C", bed.Repository(), goal, "DESTDIR="+root, "FROM="+programs, "PROGRAMS=app docker-compose k8s mender-app app-gen").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	places := []string{
		"usr/share/mender/modules/v3/app", "usr/share/mender/app-modules/v1/docker-compose", "usr/share/mender/app-modules/v1/k8s",
		"usr/bin/mender-app", "usr/bin/app-gen",
	}
	own := filepath.Join(root, "etc/mender/mender-app.conf")
	require.NoError(t, os.MkdirAll(filepath.Dir(own), 0o755))
	require.NoError(t, os.WriteFile(own, []byte("keep = 3\n"), 0o644))

	target("install")
	for _, p := range places {
		info, err := os.Stat(filepath.Join(root, p))
		require.NoError(t, err)
		require.EqualValues(t, 0o755, info.Mode().Perm())
	}
	for _, p := range []string{
		"usr/share/man/man8/mender-app.8", "usr/share/man/man8/mender-app-k8s.8", "usr/share/man/man8/mender-app-docker-compose.8", "usr/share/man/man8/mender-app-module.8",
		"usr/share/man/man5/mender-app.conf.5", "usr/share/man/man5/mender-app-docker-compose.conf.5", "usr/share/man/man5/mender-app-k8s.conf.5", "usr/share/man/man1/app-gen.1",
		"etc/mender/mender-app-docker-compose.conf", "etc/mender/mender-app-k8s.conf",
		"usr/share/bash-completion/completions/mender-app", "usr/share/bash-completion/completions/app-gen", "usr/share/bash-completion/completions/k8s",
		"usr/share/zsh/site-functions/_mender-app", "usr/share/zsh/site-functions/_app-gen",
		"usr/share/fish/vendor_completions.d/mender-app.fish", "usr/share/fish/vendor_completions.d/app-gen.fish",
		"usr/lib/systemd/system/mender-app-resume.service",
		"usr/lib/systemd/system/multi-user.target.wants/mender-app-resume.service",
		"usr/lib/systemd/system/mender-app-secrets.service",
		"usr/lib/systemd/system/multi-user.target.wants/mender-app-secrets.service",
		"usr/lib/systemd/system/mender-app-serve.socket", "usr/lib/systemd/system/mender-app-serve.service",
		"usr/lib/systemd/system/mender-app-actions.socket", "usr/lib/systemd/system/mender-app-actions.service",
		"usr/lib/systemd/system/mender-app-metrics.timer", "usr/lib/systemd/system/mender-app-metrics.service",
		"usr/lib/sysusers.d/mender-app.conf", "usr/lib/systemd/catalog/mender-app.catalog",
	} {
		require.FileExists(t, filepath.Join(root, p))
	}
	require.NoFileExists(t, filepath.Join(root, "usr/lib/systemd/system/multi-user.target.wants/mender-app-serve.service"), "whoever wants it enables it")
	text, err := os.ReadFile(own)
	require.NoError(t, err)
	require.Equal(t, "keep = 3\n", string(text))

	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/mender-app-resume.service"))
	require.NoError(t, err)
	require.Contains(t, string(unit), "ExecStart=/usr/bin/mender-app resume\n", "without DESTDIR")

	target("uninstall")
	var left []string
	require.NoError(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			left = append(left, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	require.ElementsMatch(t, []string{
		"etc/mender/mender-app.conf", "etc/mender/mender-app-docker-compose.conf", "etc/mender/mender-app-k8s.conf",
	}, left)
}

// systemd understands the units, and calls those that answer or write metrics well
// protected.
func TestBootUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: systemd-analyze")
		}
		t.Skip("needs systemd-analyze (make setup)")
	}
	programs, err := bed.Programs()
	require.NoError(t, err)
	root := t.TempDir()
	out, err := exec.Command("make", "-s", "-C", bed.Repository(), "install", "DESTDIR="+root, "FROM="+programs).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"mender-app-resume.service", "mender-app-secrets.service", "mender-app-reconcile.service", "mender-app-serve.service", "mender-app-actions.service", "mender-app-metrics.service"} {
		// It looks for the program where the unit says it is.
		text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", name))
		require.NoError(t, err)
		text = []byte(strings.ReplaceAll(string(text), "ExecStart=", "ExecStart="+root))
		text = []byte(strings.ReplaceAll(string(text), "Documentation=man:", "#"))
		unit := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(unit, text, 0o644))
		out, err := exec.Command(analyze, "verify", "--recursive-errors=no", unit).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out))
		if strings.Contains(name, "serve") || strings.Contains(name, "metrics") {
			out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", unit).CombinedOutput()
			require.NoError(t, err, "an exposure of 2.0 at most: %s", out)
		}
	}
}

// The sample configurations, with every setting switched on, are understood.
func TestSampleConfigurationIsUnderstood(t *testing.T) {
	programs, err := bed.Programs()
	require.NoError(t, err)
	sample, err := os.Open(filepath.Join(bed.Repository(), "packaging/etc/mender-app.conf"))
	require.NoError(t, err)
	defer sample.Close()
	var on strings.Builder
	for lines := bufio.NewScanner(sample); lines.Scan(); {
		if setting, ok := strings.CutPrefix(lines.Text(), "#"); ok && !strings.HasPrefix(setting, " ") {
			on.WriteString(setting + "\n")
		}
	}
	require.Contains(t, on.String(), "persistent_store")
	file := filepath.Join(t.TempDir(), "mender-app.conf")
	text := strings.ReplaceAll(on.String(), "/data/mender-app", t.TempDir())
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	cmd := exec.Command(filepath.Join(programs, "mender-app"), "list")
	cmd.Env = append(os.Environ(), "MENDER_APP_CONFIG="+file)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "unknown", "a setting of the sample is not known")
	require.NotContains(t, string(out), "mender-app.conf", "a setting of the sample is not liked")
}

// The programs as they are released have no fault points: the variable that kills those of
// the other tests does nothing.
func TestReleasedProgramsHaveNoFaults(t *testing.T) {
	t.Parallel()
	bed.Require(t, "mender-artifact")
	d := bed.StartWithoutEngine(t)
	require.NoError(t, os.WriteFile(d.Path("/usr/share/mender/app-modules/v1/plain"), []byte(e2e.PlainSubmodule), 0o755))
	file := e2e.PlainRelease(t, d, "1", map[string]string{"one": "text"})
	install := func() bed.Result {
		t.Helper()
		args := []string{"MENDER_APP_FAULT=*:1:kill", "MENDER_APP_FAULT_TRACE=/tmp/trace", "mender-app", "install", "--force", "--unsigned", "--commit", file}
		r, err := d.Run("env", args...)
		require.NoError(t, err)
		return r
	}
	require.Negative(t, install().Code, "a program for tests is killed")
	require.FileExists(t, d.Path("/tmp/trace"))
	d.MustRun(t, "rm", "/tmp/trace")

	programs, err := bed.Released()
	require.NoError(t, err)
	require.NoError(t, d.Install(programs))
	d.MustRun(t, "mender-app", "resume")
	r := install()
	require.Zero(t, r.Code, r.Output())
	require.NoFileExists(t, d.Path("/tmp/trace"))
}
