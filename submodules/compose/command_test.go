package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// The plugin that docker compose would start is started at once, unless the user or
// the operator may mean another one.
func TestComposeCommands(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		set    settings
		config string // Docker's directory
		first  []string
		count  int
	}{
		"the plugin":                    {settings{docker: []string{"docker"}}, none, []string{plugins[0]}, len(plugins) + 2},
		"a configuration of the user's": {settings{docker: []string{"docker"}}, t.TempDir(), []string{"docker", "compose"}, len(plugins) + 2},
		"another docker command":        {settings{docker: []string{"docker", "-H", "x"}}, none, []string{"docker", "-H", "x", "compose"}, len(plugins) + 2},
		"the operator's command":        {settings{docker: []string{"docker"}, compose: []string{"c", "-v"}}, none, []string{"c", "-v"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_CONFIG", c.config)
			s := &session{set: c.set}
			tries := s.composeCommands()
			require.Equal(t, c.first, tries[0])
			require.Len(t, tries, c.count)
		})
	}
}

// A plugin is found without a start of it, which would double what HEALTHY costs. REQS
// starts it, and refuses one that does not run.
func TestPluginIsNotStarted(t *testing.T) {
	dir := t.TempDir()
	plugin, started := filepath.Join(dir, "docker-compose"), filepath.Join(dir, "started")
	require.NoError(t, os.WriteFile(plugin, []byte("#!/bin/sh\ntouch "+started+"\necho v2.26.1\n"), 0o700))
	was := plugins
	t.Cleanup(func() { plugins = was })
	plugins = []string{filepath.Join(dir, "none"), plugin}
	t.Setenv("DOCKER_CONFIG", filepath.Join(dir, "none"))
	s := &session{set: settings{docker: []string{"docker"}}, engine: &docker.Engine{}}

	c, err := s.findCompose(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{plugin}, c.words)
	require.NoFileExists(t, started)
	version, err := c.version(t.Context())
	require.NoError(t, err)
	require.Equal(t, "2.26.1", version)
	require.FileExists(t, started)

	require.NoError(t, os.WriteFile(plugin, []byte("#!/bin/sh\nexit 1\n"), 0o700))
	require.ErrorIs(t, s.checkCompose(t.Context()), submodules.ErrRequirement)
	require.ErrorContains(t, s.checkCompose(t.Context()), plugin+" does not run: exit status 1")
}
