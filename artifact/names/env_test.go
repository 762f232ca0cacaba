package names_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/names"
)

func TestCheckEnv(t *testing.T) {
	for _, s := range append([]string{"PY_VENV", "A", "TARGET_2", strings.Repeat("X", 64)}, names.AlwaysEnv...) {
		require.NoError(t, names.CheckEnv(s), s)
	}
	for _, s := range []string{
		"", "py_venv", "1A", "A-B", "A B", "A=B", "A\nB", "Ä", strings.Repeat("X", 65), strings.Repeat("x", 10_000),
		"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "IFS", "HOME", "PYTHONPATH", "PERL5LIB", "NODE_OPTIONS",
		"GIT_SSH_COMMAND", "DOCKER_HOST", "COMPOSE_FILE", "KUBECONFIG", "MENDER_APP_FAULT", "MODULE_TMPDIR", "OPTIONS",
		"HTTPS_PROXY", "GODEBUG", "JAVA_TOOL_OPTIONS", "SSL_CERT_FILE", "TMPDIR", "XDG_RUNTIME_DIR", "CONTAINERD_ADDRESS",
	} {
		err := names.CheckEnv(s)
		require.Error(t, err, s)
		require.Less(t, len(err.Error()), 200)
	}
}
