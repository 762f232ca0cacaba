package compose

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf("HEALTH_DEADLINE=20\nHEALTH_WINDOW=700ms\n")
	last := map[digest.Digest]string{} // by image, what is in its last layer
	release := func(version, more string) conformance.Release {
		img, comp := b.image(version)
		last[comp.Digest] = b.app + version
		return conformance.Release{
			Components: []submodules.Component{comp},
			Content:    map[string]string{comp.URL: b.archive(img, "elsewhere:1")},
			Manifests:  compose(b.app, more),
		}
	}
	info, err := b.cli.Info(t.Context())
	require.NoError(t, err)
	var damage func(submodules.Component)
	if _, err := os.ReadDir(info.DockerRootDir); err == nil {
		damage = func(c submodules.Component) { b.lose(c.DiffIDs[1], "version", []byte(last[c.Digest])) }
	}
	report, err := conformance.Check(t.Context(), conformance.Options{
		Path: b.mod.Path, Env: append([]string{submodules.EnvConfigDir + "=" + b.mod.Config.ConfigDir}, b.mod.Config.Env...),
		Fixture: &conformance.Fixture{
			Damage: damage, App: b.app,
			Good: release("1", ""), Better: release("2", ""), Bad: release("3", "    command: [exit, \"1\"]\n"),
		},
	})
	require.NoError(t, err)
	require.Empty(t, report.Failed())
	require.Greater(t, report.Count(conformance.Pass), 150)
}
