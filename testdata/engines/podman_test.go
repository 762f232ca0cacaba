package engines

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

// Podman at Docker's socket (docs/DOCKER-COMPOSE.md says what works). Its health
// checks are systemd's timers: without systemd, as here, there are none.
func TestPodman(t *testing.T) {
	extra(t, "podman/usr/bin/podman")
	d := bed.StartWith(t, bed.Podman)
	configure(t, d, "")
	const unchecked = "    healthcheck: {disable: true}\n"
	life(t, newApp(t, d, "shop"), unchecked)

	a := newApp(t, d, "pod")
	one, two, three := newPicture(t, "pod", "pod/web:1", "1"), newPicture(t, "pod", "pod/web:2", "2"), newPicture(t, "pod", "pod/web:3", "3")
	a.load(one, one.archive(t, d, 0))
	a.load(two, two.archive(t, d, 0))
	a.load(three, three.delta(t, d, two))
	kept := []submodules.Component{two.Component, three.Component}
	a.call(kept, "", submodules.VerbVerify, a.name)
	a.call(nil, "", submodules.VerbSync, a.name)
	require.Len(t, a.list(nil), 3)
	a.call([]submodules.Component{one.Component}, "", submodules.VerbDelete, one.URL, a.name)
	a.call(kept, "", submodules.VerbVerify, a.name)
	require.Len(t, a.list(nil), 2)
	for _, p := range []picture{two, three} {
		a.call([]submodules.Component{p.Component}, "", submodules.VerbSave, a.name, p.URL, d.Share("saved"))
		p.saved(t, d.Share("saved"))
		require.NoError(t, os.Remove(d.Share("saved")))
	}
	hollow(t, d, "last", []byte(mark(three.URL, "3")))
	r := a.try(kept, "", submodules.VerbVerify, a.name)
	require.Equal(t, 1, r.Code, r.Output())
	require.Contains(t, r.Output(), "docker save", "Podman does not save what is damaged")
	a.call(nil, "", submodules.VerbPurge, a.name)
	require.Empty(t, a.list(nil))
}
