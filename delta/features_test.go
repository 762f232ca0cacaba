package delta_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/deflate"
	"github.com/mender-app/mender-app/delta/encoder"
)

// A delta without a feature leaves the streams as they are that need it. Encode decodes
// what it made.
func TestWithoutFeatures(t *testing.T) {
	plain := []string{delta.FeatureELF, delta.FeatureLZ}
	deflated := append(plain[:2:2], delta.FeatureDeflate)
	for _, c := range []struct {
		variant deflate.Variant
		options encoder.Options
		want    []string
	}{
		{deflate.Go(6), encoder.Options{}, append(deflated[:3:3], delta.FeatureGo)},
		{deflate.Go(6), encoder.Options{NoGo: true}, plain},
		{deflate.Go(6), encoder.Options{NoDeflate: true}, plain},
		{deflate.GNU(6), encoder.Options{NoGo: true}, deflated},
		{deflate.GNU(6), encoder.Options{NoDeflate: true}, plain},
	} {
		old, new := gzipPair(t, c.variant, deflate.GzipHead)
		var d bytes.Buffer
		rep, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, c.options)
		require.NoError(t, err)
		require.Equal(t, c.want, rep.Header.Features, "%s %+v", c.variant, c.options)
	}
}
