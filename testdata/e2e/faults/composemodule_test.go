package faults

import (
	"testing"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The same with kills of the client and its call in each state.
func TestArtifactsOfContainerModulesKilled(t *testing.T) {
	d := e2e.Device(t)
	d.UseCppMender(t)
	e2e.ComposeModule(t, d)
	killedInEachState(t, d, "docker-compose", map[string]string{"1": e2e.ProjectRelease(t, d, "1", ""), "2": e2e.ProjectRelease(t, d, "2", "")}, e2e.ProjectProvides)
}
