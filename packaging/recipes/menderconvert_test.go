package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The hook for mender-convert installs the only package for the image's processor, and
// stops the conversion without one. mender-convert's own functions are stood in for: they
// need an image.
func TestMenderConvertHook(t *testing.T) {
	hook, err := filepath.Abs("../mender-convert/mender_app_config")
	require.NoError(t, err)
	run := func(packages ...string) (string, error) {
		dir := t.TempDir()
		for _, p := range packages {
			write(t, filepath.Join(dir, "input", p), "")
		}
		c := exec.Command("bash", "-euc", `
			probe_debian_arch_name() { echo arm64; }
			log_info() { :; }
			log_fatal() { echo "fatal: $1"; exit 1; }
			deb_install_packages() { echo "install: $*"; }
			USER_LOCAL_MODIFY_HOOKS=(before)
			. "$0"
			echo "${USER_LOCAL_MODIFY_HOOKS[@]}"
			eval "${USER_LOCAL_MODIFY_HOOKS[1]}"`, hook)
		c.Dir = dir
		out, err := c.CombinedOutput()
		return string(out), err
	}
	said, err := run("mender-app_1.0.0-1_arm64.deb", "mender-app_1.0.0-1_amd64.deb", "mender-app-k8s_1.0.0-1_arm64.deb")
	require.NoError(t, err)
	require.Equal(t, "before mender_app_install\ninstall: work/rootfs input/mender-app_1.0.0-1_arm64.deb\n", said)
	for _, packages := range [][]string{nil, {"mender-app_1.0.0-1_amd64.deb"}, {"mender-app_1_arm64.deb", "mender-app_2_arm64.deb"}} {
		said, err = run(packages...)
		require.Error(t, err)
		require.Contains(t, said, "must have one package mender-app_*_arm64.deb")
	}
}

// mender-convert has the functions and the list of hooks that the hook uses.
func TestMenderConvertHasTheFunctions(t *testing.T) {
	const name = "MENDER_APP_MENDER_CONVERT"
	checkout := os.Getenv(name)
	if checkout == "" {
		t.Skip(name + " names no checkout of mender-convert")
	}
	for function, file := range map[string]string{
		"probe_debian_arch_name": "modules/probe.sh", "log_info": "modules/log.sh", "log_fatal": "modules/log.sh", "deb_install_packages": "modules/deb.sh",
	} {
		text, err := os.ReadFile(filepath.Join(checkout, file))
		require.NoError(t, err)
		require.Regexp(t, `(?m)^(function )?`+function+` *(\(\))? *\{`, string(text), file)
	}
	text, err := os.ReadFile(filepath.Join(checkout, "mender-convert-modify"))
	require.NoError(t, err)
	require.Contains(t, string(text), "USER_LOCAL_MODIFY_HOOKS=")
}
