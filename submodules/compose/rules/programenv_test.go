package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVariableReader(t *testing.T) {
	for name, want := range map[string]string{
		"DOCKER_HOST": "the docker command", "COMPOSE_ENV_FILES": "Docker Compose", "BUILDX_BUILDER": "docker buildx", "GIT_SSH_COMMAND": "git",
		"DOCKER_INFLUXDB_INIT_USERNAME": "", "DOCKER_VOLUME_STORAGE": "", "COMPOSE_PROFILES": "", "COMPOSE_FILE": "", "PATH": "",
	} {
		require.Equal(t, want, VariableReader(name), name)
	}
	all := map[string]bool{}
	for _, names := range programs {
		for _, name := range names {
			require.False(t, all[name], name)
			all[name] = true
		}
	}
}
