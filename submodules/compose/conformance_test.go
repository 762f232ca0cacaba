package compose

import (
	"testing"

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
	conformance.RunApplication(t, conformance.Fixture{
		Module: b.mod, App: b.app,
		Good: release("1", ""), Better: release("2", ""), Bad: release("3", "    command: [exit, \"1\", \"0.2\"]\n"),
	})
}
