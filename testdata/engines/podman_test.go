package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

// Podman at Docker's socket (docs/DOCKER-COMPOSE.md says what works), run by root
// and by another user. Podman's health checks are systemd timers: without systemd,
// as here, they do not run.
func TestPodman(t *testing.T) {
	extra(t, "podman/usr/sbin/nft")
	for _, e := range []bed.Engine{bed.Podman, bed.RootlessPodman} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := bed.StartWith(t, e)
			configure(t, d, "")
			life(t, newApp(t, d, "shop"), unchecked)
			podmanMounts(t, d)
			podmanPorts(t, d)
			podmanChecks(t, d)
			podmanImages(t, d)
			podmanDamaged(t, d)
		})
	}
}

const unchecked = "    healthcheck: {disable: true}\n"

// podmanPorts updates a service whose port is published.
func podmanPorts(t *testing.T, d *bed.Device) {
	a := newApp(t, d, "ports")
	for _, version := range []string{"1", "2"} {
		p := newPicture(t, "ports", "ports/web:"+version, version)
		a.load(p, p.archive(t, d, 0))
		dir := a.manifests(version, "services:\n  web:\n    image: "+p.URL+"\n    ports: [\"8080:8080\"]\n    stop_grace_period: 2s\n"+unchecked)
		a.call([]submodules.Component{p.Component}, "", submodules.VerbRollout, a.name, dir)
		w, err := d.Watch("http://127.0.0.1:8080/version")
		require.NoError(t, err)
		bed.Eventually(t, 20*time.Second, "web "+version+" answers", func() bool { return w.Says() == "web "+version })
		w.Stop()
	}
	a.call(nil, "", submodules.VerbPurge, a.name)
}

// podmanMounts rolls out a service that mounts a file of the manifests. Only root can enter
// the store; what an engine of another user mounts lies beside it.
func podmanMounts(t *testing.T, d *bed.Device) {
	a := newApp(t, d, "mounts")
	p := newPicture(t, "mounts", "mounts/web:1", "1")
	a.load(p, p.archive(t, d, 0))
	dir := a.manifests("1", strings.ReplaceAll(composeFile, "IMAGE", p.URL)+unchecked+"    volumes: [\"./conf:/conf:ro\"]\n")
	require.NoError(t, os.Mkdir(filepath.Join(d.Path(dir), "conf"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(d.Path(dir), "conf/words"), []byte("red"), 0o644))
	a.call([]submodules.Component{p.Component}, "", submodules.VerbRollout, a.name, dir)
	base := "/data/store/mounts/mounts/"
	if d.Engine.Rootless {
		base = "/data/store-mounts/mounts/"
	}
	require.True(t, strings.HasPrefix(a.container("web", "{{(index .Mounts 0).Source}}"), base), a.container("web", "{{.Mounts}}"))
	a.call(nil, "", submodules.VerbPurge, a.name, dir)
	_, err := os.Stat(d.Path(strings.TrimSuffix(base, "/")))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// podmanChecks rolls out a service with a health check that never runs. Podman does
// not see the health check of the image itself.
func podmanChecks(t *testing.T, d *bed.Device) {
	conf := d.Path("/etc/mender/mender-app-docker-compose.conf")
	before, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, []byte("HEALTH_DEADLINE=3\n"), 0o644))
	a := newApp(t, d, "checked")
	p := newPicture(t, "checked", "checked/web:1", "1")
	a.load(p, p.archive(t, d, 0))
	release := []submodules.Component{p.Component}
	text := strings.ReplaceAll(composeFile, "IMAGE", p.URL)
	a.call(release, "", submodules.VerbRollout, a.name, a.manifests("1", text))
	text += "    healthcheck: {test: [CMD, /shop], interval: 1s}\n"
	r := a.try(release, "", submodules.VerbRollout, a.name, a.manifests("2", text))
	require.Equal(t, 6, r.Code, r.Output())
	require.Contains(t, r.Stderr, "Podman leaves them to timers of systemd")
	a.call(nil, "", submodules.VerbPurge, a.name)
	require.NoError(t, os.WriteFile(conf, before, 0o644))
}

// podmanDamaged is a container whose layer a power cut damaged. Podman then lists no
// container at all. The error says what to do, and that helps.
func podmanDamaged(t *testing.T, d *bed.Device) {
	a := newApp(t, d, "damaged")
	p := newPicture(t, "damaged", "damaged/web:1", "1")
	a.load(p, p.archive(t, d, 0))
	dir := a.manifests("1", strings.ReplaceAll(composeFile, "IMAGE", p.URL)+unchecked)
	release := []submodules.Component{p.Component}
	a.call(release, "", submodules.VerbRollout, a.name, dir)
	id, upper := a.container("web", "{{.Id}}"), a.container("web", "{{.GraphDriver.Data.UpperDir}}")
	d.MustRun(t, "docker", "kill", id)
	lower := d.Path(filepath.Join(filepath.Dir(upper), "lower"))
	info, err := os.Stat(lower)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(lower, make([]byte, info.Size()), 0o644))
	r := a.try(release, "", submodules.VerbRollout, a.name, dir)
	require.NotZero(t, r.Code, r.Output())
	require.Contains(t, r.Stderr, id)
	require.Contains(t, r.Stderr, "remove it with podman rm --force")
	d.MustRun(t, "docker", "rm", "--force", id)
	a.call(release, "", submodules.VerbRollout, a.name, dir)
	require.Equal(t, "running", a.container("web", "{{.State.Status}}"))
	a.call(nil, "", submodules.VerbPurge, a.name)
}

// podmanImages is the life of an application's images.
func podmanImages(t *testing.T, d *bed.Device) {
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
	r = a.try(kept, "", submodules.VerbRepair, a.name, repairDir(t, d))
	require.Equal(t, 5, r.Code, r.Output())
	require.Contains(t, r.Stderr, "Podman", "refused, by name")
	require.Contains(t, r.Stderr, "podman rmi")
	a.call(nil, "", submodules.VerbPurge, a.name)
	require.Empty(t, a.list(nil))
}

// repairDir is a directory for REPAIR.
func repairDir(t *testing.T, d *bed.Device) string {
	t.Helper()
	dir, err := os.MkdirTemp(d.Share(""), "repair-")
	require.NoError(t, err)
	return dir
}
