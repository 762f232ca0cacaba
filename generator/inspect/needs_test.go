package inspect

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
)

// An artifact of which all images travel in several ways announces nothing for them
// all; it still takes space, which is that of the way that takes most.
func TestNeedsOfVariants(t *testing.T) {
	d := &Description{meta: &artifact.Metadata{Sizes: &artifact.Sizes{Temp: 20, Memory: 1, Manifests: 5}}}
	d.Images = []ImageDescription{
		{Variants: []VariantDescription{{Engine: 7, Temp: 10, Memory: 3}, {Engine: 90, Temp: 30, Memory: 2}}},
		{Variants: []VariantDescription{{Engine: 100}, {Engine: 4}}},
	}
	s, atMost := d.Needs()
	require.True(t, atMost)
	require.Equal(t, artifact.Sizes{Engine: 190, Temp: 30, Memory: 3, Manifests: 5}, *s)
	require.Zero(t, d.Parsed().Sizes.Engine, "what the artifact announces stays")

	d.Images = []ImageDescription{{Format: string(artifact.FormatFull)}}
	d.Parsed().Sizes.Engine = 11
	s, atMost = d.Needs()
	require.False(t, atMost)
	require.EqualValues(t, 11, s.Engine)

	s, _ = (&Description{meta: &artifact.Metadata{}}).Needs()
	require.Nil(t, s)
}
