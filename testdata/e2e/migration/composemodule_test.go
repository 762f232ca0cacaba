package migration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// Artifacts of mender-container-modules are installed by app under its second name.
// What fails goes back, and an unchanged service runs on: their own module stops the
// project first.
func TestArtifactsOfContainerModules(t *testing.T) {
	t.Parallel()
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			d := e2e.Device(t)
			c.Use(t, d)
			e2e.ComposeModule(t, d)
			w := e2e.Watch(t, d)
			e2e.Mender(t, d, "install", e2e.ProjectRelease(t, d, "1", ""))
			e2e.Mender(t, d, "commit")
			e2e.Says(t, w, "web 1")
			d.MustProvide(t, e2e.ProjectProvides("1"))
			first := d.MustState(t)

			e2e.MenderFails(t, d, "install", e2e.ProjectRelease(t, d, "3", "crash"))
			e2e.Says(t, w, "web 1")
			d.MustProvide(t, e2e.ProjectProvides("1"))

			e2e.Mender(t, d, "install", e2e.ProjectRelease(t, d, "2", ""))
			e2e.Says(t, w, "web 2")
			e2e.Mender(t, d, "rollback")
			e2e.Says(t, w, "web 1")
			d.MustProvide(t, e2e.ProjectProvides("1"))

			e2e.Mender(t, d, "install", e2e.ProjectRelease(t, d, "2", ""))
			e2e.Mender(t, d, "commit")
			e2e.Says(t, w, "web 2")
			d.MustProvide(t, e2e.ProjectProvides("2"))
			require.Equal(t, first.Service("shop", "stock"), d.MustState(t).Service("shop", "stock"), "the unchanged service was touched")
			d.MustRun(t, "mender-app", "verify", "shop")
			d.MustRun(t, "mender-app", "rollback", "shop")
			e2e.Says(t, w, "web 1")
		})
	}
}

// A device of mender-container-modules goes on with artifacts of its own generator, by
// app in the place of its module.
func TestContainerModulesItselfReplaced(t *testing.T) {
	d := e2e.Device(t)
	dir := containerModules(t, d)
	manifests, images := modulesFiles(t, d)
	made := func(name string) string {
		artifact := d.Share(name + ".mender")
		d.MustRun(t, "bash", "-c", "PATH="+dir+":$PATH "+filepath.Join(dir, "gen_docker-compose")+" -n "+name+" -t "+bed.Type+" -p shop -o "+artifact+
			" -m "+manifests+" -i "+images+" >/tmp/gen.log 2>&1; test -s "+artifact+" || { cat /tmp/gen.log; exit 1; }")
		return artifact
	}
	old := made("old")
	// The module gives Compose the project's name, and ignores the one in the file.
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(latestCompose()), 0o644))
	require.NoError(t, bed.WriteArchive(filepath.Join(images, "web.tar"), latest(t, "2", "")))
	next := made("next")

	module := "/usr/share/mender/modules/v3/docker-compose"
	d.MustRun(t, "install", "-m", "755", filepath.Join(dir, "docker-compose"), module)
	e2e.Mender(t, d, "install", old)
	e2e.Mender(t, d, "commit")
	w := e2e.Watch(t, d)
	e2e.Says(t, w, "web 1")
	before := d.MustState(t)

	e2e.ComposeModule(t, d)
	e2e.Mender(t, d, "install", next)
	e2e.Says(t, w, "web 2")
	e2e.Mender(t, d, "rollback")
	e2e.Says(t, w, "web 1")
	e2e.Mender(t, d, "install", next)
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	require.Equal(t, before.Service("shop", "stock"), d.MustState(t).Service("shop", "stock"), "the unchanged service was touched")
	require.Empty(t, d.MustRun(t, "ls", "-A", "/data/mender-docker-compose"))
}
