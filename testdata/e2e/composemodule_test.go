package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// composeModule installs app under its second name, docker-compose, as make install
// COMPOSE_MODULE=yes does.
func composeModule(t *testing.T, d *bed.Device) {
	t.Helper()
	programs, err := bed.Programs()
	require.NoError(t, err)
	d.MustRun(t, "make", "-s", "-C", bed.Repository(), "install", "FROM="+programs, "PROGRAMS=app", "COMPOSE_MODULE=yes")
}

// projectRelease makes an artifact of the shop as the generator of
// mender-container-modules does, with the real mender-artifact.
func projectRelease(t *testing.T, d *bed.Device, version, mode string) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"manifests", "images"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("manifests/docker-compose.yml", compose(version))
	write("meta.json", `{"version": "1", "project_name": "shop"}`)
	require.NoError(t, bed.WriteArchive(filepath.Join(dir, "images/shop_web_"+version+".tar"), web(t, version, mode)))
	require.NoError(t, bed.WriteArchive(filepath.Join(dir, "images/shop_stock_1.tar"), stock(t)))
	out := d.Share("project-" + version + ".mender")
	for _, args := range [][]string{
		{"tar", "-cf", "manifests.tar", "manifests"}, {"tar", "-czf", "images.tar.gz", "images"},
		{
			"mender-artifact", "write", "module-image", "-T", "docker-compose", "--compression", "none", "-n", "shop-" + version, "-t", bed.Type,
			"-f", "images.tar.gz", "-f", "manifests.tar", "--meta-data", "meta.json", "-o", out, "--software-name", "mender-docker-compose.shop",
			"--clears-provides", "*mender-docker-compose_*", "--no-default-clears-provides",
		},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v\n%s", args, text)
	}
	return out
}

func projectProvides(version string) map[string]string {
	return map[string]string{"artifact_name": "shop-" + version, "rootfs-image.mender-docker-compose.shop.version": "shop-" + version}
}

// Artifacts of mender-container-modules are installed by app under its second name.
// What fails goes back, and an unchanged service runs on: their own module stops the
// project first.
func TestArtifactsOfContainerModules(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.use(t, d)
			composeModule(t, d)
			w := watch(t, d)
			mender(t, d, "install", projectRelease(t, d, "1", ""))
			mender(t, d, "commit")
			says(t, w, "web 1")
			d.MustProvide(t, projectProvides("1"))
			first := d.MustState(t)

			menderFails(t, d, "install", projectRelease(t, d, "3", "crash"))
			says(t, w, "web 1")
			d.MustProvide(t, projectProvides("1"))

			mender(t, d, "install", projectRelease(t, d, "2", ""))
			says(t, w, "web 2")
			mender(t, d, "rollback")
			says(t, w, "web 1")
			d.MustProvide(t, projectProvides("1"))

			mender(t, d, "install", projectRelease(t, d, "2", ""))
			mender(t, d, "commit")
			says(t, w, "web 2")
			d.MustProvide(t, projectProvides("2"))
			require.Equal(t, first.Service("shop", "stock"), d.MustState(t).Service("shop", "stock"), "the unchanged service was touched")
			d.MustRun(t, "mender-app", "verify", "shop")
			d.MustRun(t, "mender-app", "rollback", "shop")
			says(t, w, "web 1")
		})
	}
}

// The same with kills of the client and its call in each state.
func TestArtifactsOfContainerModulesKilled(t *testing.T) {
	d := device(t)
	d.UseCppMender(t)
	composeModule(t, d)
	killedInEachState(t, d, "docker-compose", map[string]string{"1": projectRelease(t, d, "1", ""), "2": projectRelease(t, d, "2", "")}, projectProvides)
}

// A device of mender-container-modules goes on with artifacts of its own generator, by
// app in the place of its module.
func TestContainerModulesItselfReplaced(t *testing.T) {
	d := device(t)
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
	mender(t, d, "install", old)
	mender(t, d, "commit")
	w := watch(t, d)
	says(t, w, "web 1")
	before := d.MustState(t)

	composeModule(t, d)
	mender(t, d, "install", next)
	says(t, w, "web 2")
	mender(t, d, "rollback")
	says(t, w, "web 1")
	mender(t, d, "install", next)
	mender(t, d, "commit")
	says(t, w, "web 2")
	require.Equal(t, before.Service("shop", "stock"), d.MustState(t).Service("shop", "stock"), "the unchanged service was touched")
	require.Empty(t, d.MustRun(t, "ls", "-A", "/data/mender-docker-compose"))
}
