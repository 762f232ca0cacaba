package generator

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/inspect"
)

// What is said to be sent of each image is what the image has in the artifact,
// and together the images are the images payload.
func TestSent(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes many artifacts; left out of -short")
	}
	s := newShop(t)
	s.web2 = gentest.Image(t, "linux/amd64", gentest.Files{"etc/base": gentest.Text("base", 200_000)}, gentest.Files{"app": gentest.Text("other", 80_000)})
	gentest.DockerArchive(t, s.archive("web:2"), map[string]v1.Image{"shop/web:2": s.web2})
	tests := map[string]struct {
		pairs    []string
		fallback bool
		coding   Coding
	}{
		"whole images":            {pairs: []string{"web:2", "side:1", "extra:1"}},
		"whole images, coded":     {pairs: []string{"web:2", "side:1", "extra:1"}, coding: Coded},
		"whole images, fast":      {pairs: []string{"web:2", "side:1", "extra:1"}, coding: Fast},
		"delta release":           {pairs: []string{"web:1,web:2", "side:1,side:1", "extra:1"}},
		"one image":               {pairs: []string{"web:1,web:2"}},
		"variants":                {pairs: []string{"side:1,side:1", "web:1,web:2", "extra:1,web:2"}},
		"variants and the whole":  {pairs: []string{"web:1,web:2", "extra:1,web:2", "side:1"}, fallback: true},
		"the whole, coded":        {pairs: []string{"web:1,web:2", "extra:1,web:2", "side:1"}, fallback: true, coding: Coded},
		"the whole of all images": {pairs: []string{"web:1,web:2", "extra:1,side:1"}, fallback: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := s.options(t, test.pairs...)
			o.Images.Fallback, o.Images.Coding = test.fallback, test.coding
			r, err := Generate(t.Context(), o, false)
			require.NoError(t, err)
			d, err := inspect.Artifact(t.Context(), o.Build.Output, nil, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, artifact.ImagesPayload, d.Files[0].Name)
			require.Len(t, r.Sent, len(r.Plan.Components))
			var sum int64
			for i, sent := range r.Sent {
				sum += sent.Bytes
				c := d.Parsed().Components[i]
				if c.Format == artifact.FormatDelta && test.coding != Fast { // its content is not compressed again
					require.InDelta(t, c.PayloadBytes, sent.Bytes, 2000, "%s", c.URL)
				}
				parts := sent.Shared
				require.Len(t, sent.Variants, len(c.Variants))
				for n, bytes := range sent.Variants {
					parts += bytes
					if v := c.Variants[n]; v.Format == artifact.FormatDelta && !v.Shared {
						require.InDelta(t, v.PayloadBytes, bytes, 2000, "%s, variant %d", c.URL, n)
					}
				}
				if len(c.Variants) > 0 {
					require.Equal(t, sent.Bytes, parts)
				}
			}
			require.Equal(t, d.Files[0].Bytes, sum)
		})
	}
}
