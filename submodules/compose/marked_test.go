package compose

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// TestMarkedByAuthor: no application's files or images make its containers
// another one's.
func TestMarkedByAuthor(t *testing.T) {
	for name, label := range map[string]string{"file": "labels: {mender-app.application: shop}", "image": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			img, comp := b.image("1")
			if name == "image" {
				cf, err := img.ConfigFile()
				require.NoError(t, err)
				cf = cf.DeepCopy()
				cf.Config.Labels = map[string]string{"mender-app.application": "shop"}
				img, err = mutate.ConfigFile(img, cf)
				require.NoError(t, err)
				digest, err := img.ConfigName()
				require.NoError(t, err)
				comp.Digest = image.Digest(digest.String())
			}
			require.NoError(t, b.mod.Load(t.Context(), submodules.LoadRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{comp}}, URL: comp.URL, Path: b.archive(img, b.app+"-x:1"), Stage: true}))
			dir := b.release("1", map[string]string{"compose.yaml": "services:\n  web:\n    image: " + comp.URL + "\n    network_mode: none\n    " + label + "\n"})
			r := submodules.Request{App: b.app, Dir: dir, Components: []submodules.Component{comp}}
			require.NoError(t, b.mod.Rollout(t.Context(), r))
			require.Equal(t, b.app, b.one("web").Labels[labelApp])
			list, err := b.mod.List(t.Context(), submodules.Request{App: "shop", Components: []submodules.Component{}})
			require.NoError(t, err)
			require.Empty(t, list)
			list, err = b.mod.List(t.Context(), r)
			require.NoError(t, err)
			require.Len(t, list, 1)
		})
	}
}
