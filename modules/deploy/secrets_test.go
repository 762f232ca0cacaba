package deploy

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/submodules"
)

// withSecrets makes a tree of a release with encrypted secrets.
func (g *rig) withSecrets(t *testing.T, r release, recipients ...string) *tree {
	t.Helper()
	tr := g.newTree(t, r)
	m := r.meta()
	m.Requires, m.Recipients = append(m.Requires, artifact.FeatureSecrets), recipients
	raw, err := m.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(tr.Dir()+"/header/meta-data", raw, 0o644))
	return tr
}

// TestSecretsAreAsked: the sub-module is asked for a key before anything is
// loaded, and one that cannot decrypt is not given the release at all.
func TestSecretsAreAsked(t *testing.T) {
	g := newRig(t)
	sealed := g.withSecrets(t, v1, "age1abc", "age1def")
	err := newClient(g, true).install(sealed)
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "sub-module fake cannot decrypt them: update it")
	require.Empty(t, g.w.calls)

	g.w.features = append(g.w.features, submodules.FeatureSecrets)
	require.NoError(t, newClient(g, true).install(g.withSecrets(t, v1, "age1abc", "age1def")))
	require.Equal(t, []string{submodules.OptionSecrets, "age1abc", "age1def"}, g.w.reqs)

	g = newRig(t)
	require.NoError(t, newClient(g, true).install(g.newTree(t, v1)))
	require.Empty(t, g.w.reqs)
}
