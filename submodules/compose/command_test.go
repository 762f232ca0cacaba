package compose

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
