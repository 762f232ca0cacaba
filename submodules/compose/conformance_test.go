package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conformance.Run(t, b.mod)
	release := func(version, more string) conformance.Release {
		img, comp := b.image(version)
		return conformance.Release{
			Components: []submodules.Component{comp},
			Content:    map[string]string{comp.URL: b.archive(img, "elsewhere:1")},
			Manifests:  compose(b.app, more),
		}
	}
	info, err := b.cli.Info(t.Context())
	require.NoError(t, err)
	var damage func(submodules.Component)
	if info.Driver == "overlay2" {
		damage = func(c submodules.Component) {
			require.NoError(t, os.Truncate(filepath.Join(b.layerFiles(c, 1), "version"), 0))
		}
	}
	conformance.RunApplication(t, conformance.Fixture{
		Damage: damage,
		Module: b.mod, App: b.app,
		Good: release("1", ""), Better: release("2", ""), Bad: release("3", "    command: [exit, \"1\", \"0.2\"]\n"),
	})
}
