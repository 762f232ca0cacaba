package engines

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

// extra is something that testdata/engines/setup has made, which only the whole
// matrix (make test-engines) needs.
func extra(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("MENDER_APP_ENGINES") == "" {
		t.Skip("only with make test-engines")
	}
	path, err := bed.EngineTree(name)
	require.NoError(t, err)
	require.FileExists(t, path, "run testdata/engines/setup")
	return path
}

// Docker Compose 5, whose versions begin with another number.
func TestCompose5(t *testing.T) {
	compose := extra(t, "compose-5/docker-compose")
	onEngines(t, func(t *testing.T, d *bed.Device) {
		configure(t, d, compose)
		life(t, newApp(t, d, "shop"), "")
	})
}

// life takes an application through everything that Compose does for it. more is
// added to the service's text.
func life(t *testing.T, a *app, more string) {
	one, two := newPicture(t, a.name, a.name+"/web:1", "1"), newPicture(t, a.name, a.name+"/web:2", "2")
	for _, p := range []picture{one, two} {
		a.load(p, p.archive(t, a.d, 0))
	}
	release := func(p picture) []submodules.Component { return []submodules.Component{p.Component} }
	// The job's image has a health check. It must still be treated as a job, not a
	// service.
	text := strings.ReplaceAll(composeFile, "IMAGE", one.URL) + more + `    depends_on: [job]
  job:
    image: ` + one.URL + `
    network_mode: none
    environment: [MODE=exit0]
`
	dir := a.manifests("1", text)
	a.call(release(one), "", submodules.VerbRollout, a.name, dir)
	first := a.container("web", "{{.Id}} {{.State.StartedAt}}")
	a.call(release(one), "", submodules.VerbRollout, a.name, dir)
	require.Equal(t, first, a.container("web", "{{.Id}} {{.State.StartedAt}}"), "what did not change stays")
	require.Equal(t, "exited 0", a.container("job", "{{.State.Status}} {{.State.ExitCode}}"))
	require.Equal(t, "true\n", a.call(nil, "", submodules.VerbAlive, a.name).Stdout)

	bad := strings.ReplaceAll(composeFile, "IMAGE", two.URL) + more + "    environment: [MODE=crash]\n"
	r := a.try(release(two), "", submodules.VerbRollout, a.name, a.manifests("2", bad))
	require.Equal(t, 6, r.Code, r.Output())
	require.Contains(t, r.Stderr, "error: service web exited with code 3; it last said: web 2: the till is on fire")
	require.Equal(t, "false\n", a.try(nil, "", submodules.VerbHealthy, a.name).Stdout)
	a.call(release(one), "", submodules.VerbRollback, a.name, a.manifests("1", text))
	require.True(t, strings.HasSuffix(a.container("web", "{{.Config.Image}}"), one.URL), "Podman says docker.io/, too")

	a.call(release(one), "", submodules.VerbStop, a.name, dir)
	require.Equal(t, "exited", a.container("web", "{{.State.Status}}"))
	a.call(release(one), "", submodules.VerbStart, a.name, dir)
	require.Equal(t, "running", a.container("web", "{{.State.Status}}"))
	a.call(nil, "", submodules.VerbPurge, a.name)
	require.Empty(t, strings.TrimSpace(a.d.MustRun(t, "docker", "ps", "-aq")))
}

// Debian 12's docker-compose is a Python program of version 1.29.
func TestOldComposeIsRefused(t *testing.T) {
	tree := extra(t, "bookworm/usr/bin/docker-compose")
	d := bed.StartWith(t, bed.Engines[0])
	configure(t, d, "chroot "+strings.TrimSuffix(tree, "/usr/bin/docker-compose")+" docker-compose")
	a := newApp(t, d, "shop")
	p := newPicture(t, "shop", "shop/web:1", "1")
	a.load(p, p.archive(t, d, 0))
	r := a.try([]submodules.Component{p.Component}, "", submodules.VerbRollout, a.name, a.manifests("1", strings.ReplaceAll(composeFile, "IMAGE", p.URL)))
	require.Equal(t, 3, r.Code, r.Output())
	require.Contains(t, r.Stderr, `docker-compose" is Docker Compose 1.29.2, too old: version 2 or later is needed; install the Docker Compose plugin`)
	require.Empty(t, strings.TrimSpace(d.MustRun(t, "docker", "ps", "-aq")))
	r = a.try(nil, "", submodules.VerbReqs)
	require.Equal(t, 3, r.Code, r.Output())
}
