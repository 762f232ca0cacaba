package generator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/delta"
)

// The newest version reads everything that this one does, and each reads all that the
// one before did: a new feature needs a new line in Releases.
func TestVersions(t *testing.T) {
	var before []string
	for _, r := range Versions {
		require.Subset(t, r.Features, before)
		got, err := FeaturesOf(r.Version)
		require.NoError(t, err)
		require.Equal(t, r.Features, got)
		before = r.Features
	}
	require.ElementsMatch(t, append(append([]string{}, artifact.Features...), delta.Features...), before)
	newer, err := FeaturesOf("99.1")
	require.NoError(t, err)
	require.Equal(t, before, newer)
}
