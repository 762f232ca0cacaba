package migration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
	"github.com/mender-app/mender-app/testdata/peers"
)

// containerModulesEnv names a checkout of mender-container-modules, whose own programs
// the tests run then.
const containerModulesEnv = "MENDER_CONTAINER_MODULES"

// containerModules makes the update module and its generator from the checkout, as
// its Makefile does with m4, and returns their directory. Without a checkout it skips
// the test.
func containerModules(t *testing.T, d *bed.Device) string {
	t.Helper()
	checkout := os.Getenv(containerModulesEnv)
	if checkout == "" {
		t.Skip("needs " + containerModulesEnv + ", a checkout of mendersoftware/mender-container-modules")
	}
	for _, need := range []string{"jq", "skopeo"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skip("needs " + need)
		}
	}
	// The generator uses an option that Debian's mender-artifact does not have.
	newest, err := peers.Own("mender-artifact")
	if err != nil {
		t.Skip(err)
	}
	writer, err := os.ReadFile(newest)
	require.NoError(t, err)
	dir := d.Share("container-modules")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mender-artifact"), writer, 0o755))
	for _, name := range []string{"docker-compose", "gen_docker-compose"} {
		text, err := os.ReadFile(filepath.Join(checkout, "src", name+".in"))
		require.NoError(t, err)
		base, err := os.ReadFile(filepath.Join(checkout, "src", name+"_base.sh"))
		require.NoError(t, err)
		all := strings.Replace(string(text), "m4_include("+name+"_base.sh)\n", string(base), 1)
		var lines []string
		for line := range strings.Lines(all) {
			if !strings.HasPrefix(line, "m4_") {
				lines = append(lines, line)
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "")), 0o755))
	}
	return dir
}

// modulesCompose is the shop as a project of mender-container-modules: the file says
// another name than the one that the module gives Compose, and web mounts a file.
func modulesCompose() string {
	return "name: elsewhere\n" + strings.Replace(latestCompose(), "    ports: [\"8080:8080\"]\n",
		"    ports: [\"8080:8080\"]\n    volumes: [\"./web.conf:/conf:ro\"]\n", 1)
}

// modulesFiles writes the manifests and the images of the shop where the device can
// read them.
func modulesFiles(t *testing.T, d *bed.Device) (manifests, images string) {
	t.Helper()
	manifests, images = d.Share("old/manifests"), d.Share("old/images")
	require.NoError(t, os.MkdirAll(manifests, 0o755))
	require.NoError(t, os.MkdirAll(images, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(modulesCompose()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "web.conf"), []byte("1\n"), 0o644))
	require.NoError(t, bed.WriteArchive(filepath.Join(images, "web.tar"), latest(t, "1", "")))
	require.NoError(t, bed.WriteArchive(filepath.Join(images, "stock.tar"), e2e.Stock(t)))
	return manifests, images
}

// A device of mender-container-modules installs its next artifact with app. The
// store is written by hand, as that module writes it.
func TestAdoptsProjectOfContainerModules(t *testing.T) {
	d := e2e.Device(t)
	manifests, images := modulesFiles(t, d)
	d.MustRun(t, "bash", "-ec", `
		for image in `+images+`/*; do docker load -q -i $image; done
		mkdir -p /data/mender-docker-compose/new
		cd /data/mender-docker-compose
		cp -r `+manifests+` new/
		echo shop >new/project_name
		(cd new/manifests && docker compose --project-name shop up --detach >../compose.log 2>&1)
		docker images --format '{{.ID}}' >new/image_ids
		mv new current`)
	adoptsFromModules(t, d)
}

// The same after the module itself, with an artifact of its generator.
func TestAdoptsFromContainerModulesItself(t *testing.T) {
	d := e2e.Device(t)
	dir := containerModules(t, d)
	manifests, images := modulesFiles(t, d)
	d.MustRun(t, "install", "-m", "755", filepath.Join(dir, "docker-compose"), "/usr/share/mender/modules/v3/docker-compose")
	artifact := d.Share("old.mender")
	d.MustRun(t, "bash", "-c", "PATH="+dir+":$PATH "+filepath.Join(dir, "gen_docker-compose")+" -n old -t "+bed.Type+" -p shop -o "+artifact+
		" -m "+manifests+" -i "+images+" >/tmp/gen.log 2>&1; test -s "+artifact+" || { cat /tmp/gen.log; exit 1; }")
	e2e.Mender(t, d, "install", artifact)
	e2e.Mender(t, d, "commit")
	adoptsFromModules(t, d)
}

// adoptsFromModules runs the shop of a device of mender-container-modules through its
// next updates.
func adoptsFromModules(t *testing.T, d *bed.Device) {
	w := e2e.Watch(t, d)
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "1")
	before := d.MustState(t)
	require.NotNil(t, before.Service("shop", "web"))
	unchanged := func() {
		t.Helper()
		require.Equal(t, before.Service("shop", "stock"), d.MustState(t).Service("shop", "stock"), "the unchanged service was touched")
	}

	// Before anything of it is adopted, the project can be seen and verified.
	require.Regexp(t, `(?m)^shop +- +- +docker-compose +not adopted$`, d.MustRun(t, "mender-app", "list"))
	require.Contains(t, d.MustRun(t, "mender-app", "verify", "shop"), "all components are whole")
	require.Contains(t, d.MustRun(t, "mender-app", "verify"), "all components are whole")
	r, err := d.Run("mender-app", "rollback", "shop")
	require.NoError(t, err)
	require.Equal(t, 4, r.Code)
	require.Contains(t, r.Output(), "shop is not adopted yet: install an artifact for it first")
	require.Equal(t, before.Files, d.MustState(t, "/data/mender-app").Files)

	// A bad update comes first: the project must come back, and the module's store stay.
	e2e.MenderFails(t, d, "install", latestRelease(t, d, "3", "crash"))
	e2e.Says(t, w, "web 1")
	unchanged()
	d.MustRun(t, "test", "-f", "/data/mender-docker-compose/current/project_name")
	e2e.Visit(t, d, "2")

	e2e.Mender(t, d, "install", latestRelease(t, d, "2", ""))
	e2e.Says(t, w, "web 2")
	d.MustRun(t, "docker", "image", "prune", "-f") // what has no tag is gone then
	e2e.Mender(t, d, "rollback")
	e2e.Says(t, w, "web 1")
	unchanged()

	e2e.Mender(t, d, "install", latestRelease(t, d, "2", ""))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	unchanged()
	e2e.Visit(t, d, "3")
	require.Empty(t, d.MustRun(t, "ls", "-A", "/data/mender-docker-compose"), "after the commit the module's files are gone")
	require.Contains(t, d.MustRun(t, "mender-app", "health", "shop"), "healthy")

	d.MustRun(t, "docker", "image", "prune", "-f")
	d.MustRun(t, "mender-app", "rollback", "shop")
	e2e.Says(t, w, "web 1")
	unchanged()
	e2e.Visit(t, d, "4")
	require.Contains(t, d.MustRun(t, "mender-app", "health", "shop"), "healthy")
	require.Equal(t, "1\n", d.MustRun(t, "sh", "-c", `cat "$(docker inspect -f '{{(index .Mounts 0).Source}}' shop-web-1)"`), "what web mounts outlives the module's files")

	// The stock's container still is the one that the module started.
	d.MustRun(t, "mender-app", "stop", "shop")
	require.Equal(t, "exited", d.MustState(t).Service("shop", "stock").Status)
	d.MustRun(t, "mender-app", "start", "shop")
	e2e.Says(t, w, "web 1")
	d.MustRun(t, "mender-app", "purge", "--force", "shop")
	after := d.MustState(t)
	require.Empty(t, after.Containers)
	require.Contains(t, after.Volumes, "shop_counts")
}

// An update of mender-container-modules was neither committed nor rolled back, and its
// release runs: what the client believes is installed is adopted, and comes back.
func TestAdoptsFromAnOpenUpdateOfContainerModules(t *testing.T) {
	d := e2e.Device(t)
	w := e2e.Watch(t, d)
	for name, image := range map[string]bed.Image{"web1.tar": e2e.Web(t, "1", ""), "web2.tar": e2e.Web(t, "2", ""), "stock.tar": e2e.Stock(t)} {
		require.NoError(t, bed.WriteArchive(d.Share(name), image))
		d.MustRun(t, "docker", "load", "-q", "-i", d.Share(name))
	}
	for version, place := range map[string]string{"1": "previous", "2": "new"} {
		at := d.Share(place)
		require.NoError(t, os.MkdirAll(at+"/manifests", 0o755))
		require.NoError(t, os.WriteFile(at+"/manifests/docker-compose.yml", []byte(e2e.Compose(version)), 0o644))
		require.NoError(t, os.WriteFile(at+"/project_name", []byte("shop\n"), 0o644))
		d.MustRun(t, "bash", "-ec", "mkdir -p /data/mender-docker-compose; cp -r "+at+" /data/mender-docker-compose/")
	}
	d.MustRun(t, "bash", "-ec", "cd /data/mender-docker-compose/new/manifests && docker compose --project-name shop up --detach >../compose.log 2>&1")
	e2e.Says(t, w, "web 2")
	e2e.Visit(t, d, "1")

	e2e.MenderFails(t, d, "install", e2e.Release(t, d, "3", "crash"))
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "2")
	e2e.Mender(t, d, "install", e2e.Release(t, d, "4", ""))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 4")
	e2e.Visit(t, d, "3")
	d.MustRun(t, "docker", "image", "prune", "-f")
	d.MustRun(t, "mender-app", "rollback", "shop")
	e2e.Says(t, w, "web 1")
	require.Empty(t, d.MustRun(t, "ls", "-A", "/data/mender-docker-compose"))
}
