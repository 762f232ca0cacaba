package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildroot names a checkout of Buildroot, 2026.05 or later.
const buildroot = "MENDER_APP_BUILDROOT"

// Buildroot's own check finds no fault with the package.
func TestBuildrootPackage(t *testing.T) {
	checkout := checkoutOf(t)
	var files []string
	require.NoError(t, filepath.WalkDir("../buildroot", func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	require.Len(t, files, 7)
	out, err := exec.Command("/usr/bin/python3", append([]string{filepath.Join(checkout, "utils/check-package"), "--br2-external"}, files...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Buildroot's own check wants lines of help of at most 62 characters: without a checkout,
// that alone is looked at.
func TestBuildrootHelpIsNarrow(t *testing.T) {
	text, err := os.ReadFile("../buildroot/package/mender-app/Config.in")
	require.NoError(t, err)
	lines := regexp.MustCompile("(?m)^\t  (.*)$").FindAllSubmatch(text, -1)
	require.NotEmpty(t, lines)
	for _, line := range lines {
		require.LessOrEqual(t, len(line[1]), 62, "%s", line[1])
	}
}

// Buildroot offers the package for the processors that it is made for, and knows its
// version.
func TestBuildrootConfigures(t *testing.T) {
	checkout := checkoutOf(t)
	external, err := filepath.Abs("../buildroot")
	require.NoError(t, err)
	for arch, offered := range map[string]string{"BR2_aarch64": "y", "BR2_x86_64": "y", "BR2_mips": ""} {
		out := t.TempDir()
		fragment := filepath.Join(t.TempDir(), "defconfig")
		write(t, fragment, arch+"=y\nBR2_PACKAGE_MENDER_APP=y\nBR2_PACKAGE_MENDER_APP_K8S=y\n")
		run := func(args ...string) string {
			t.Helper()
			c := exec.Command("make", append([]string{"-s", "-C", checkout, "O=" + out, "BR2_EXTERNAL=" + external}, args...)...)
			c.Env = environment()
			said, err := c.CombinedOutput()
			require.NoError(t, err, "%s", said)
			return string(said)
		}
		run("defconfig", "BR2_DEFCONFIG="+fragment)
		config, err := os.ReadFile(filepath.Join(out, ".config"))
		require.NoError(t, err)
		if offered == "" {
			require.NotContains(t, string(config), "BR2_PACKAGE_MENDER_APP=y")
			continue
		}
		require.Contains(t, string(config), "BR2_PACKAGE_MENDER_APP=y")
		require.Contains(t, run("printvars", "VARS=MENDER_APP_VERSION"), versionOf(t))
		require.Contains(t, run("printvars", "VARS=MENDER_APP_PROGRAMS"), "app docker-compose mender-app k8s")
	}
}

func checkoutOf(t *testing.T) string {
	t.Helper()
	checkout := os.Getenv(buildroot)
	if checkout == "" {
		t.Skip(buildroot + " names no checkout of Buildroot")
	}
	return checkout
}

// environment is this process's, without what make has told it.
func environment() (env []string) {
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		env = append(env, name+"="+os.Getenv(name))
	}
	return env
}
