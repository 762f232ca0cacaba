package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// ComposeModule installs app under its second name, docker-compose, as make install
// COMPOSE_MODULE=yes does.
func ComposeModule(t *testing.T, d *bed.Device) {
	t.Helper()
	programs, err := bed.Programs()
	require.NoError(t, err)
	d.MustRun(t, "make", "-s", "-C", bed.Repository(), "install", "FROM="+programs, "PROGRAMS=app", "COMPOSE_MODULE=yes")
}

// ProjectRelease makes an artifact of the shop as the generator of
// mender-container-modules does, with the real mender-artifact.
func ProjectRelease(t *testing.T, d *bed.Device, version, mode string) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"manifests", "images"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("manifests/docker-compose.yml", Compose(version))
	write("meta.json", `{"version": "1", "project_name": "shop"}`)
	require.NoError(t, bed.WriteArchive(filepath.Join(dir, "images/shop_web_"+version+".tar"), Web(t, version, mode)))
	require.NoError(t, bed.WriteArchive(filepath.Join(dir, "images/shop_stock_1.tar"), Stock(t)))
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

// ProjectProvides is what the client must report after an artifact of ProjectRelease.
func ProjectProvides(version string) map[string]string {
	return map[string]string{"artifact_name": "shop-" + version, "rootfs-image.mender-docker-compose.shop.version": "shop-" + version}
}

// LeftToPerson is the file of a policy that leaves a failed release to a person.
func LeftToPerson(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(file, []byte("upgrades = {rollback_on_failure = false}\n"), 0o644))
	return file
}

// CurrentRelease is the name of the artifact that mender-app says is installed.
func CurrentRelease(t *testing.T, d *bed.Device) string {
	t.Helper()
	var apps []struct {
		Artifact string `json:"artifact_name"`
	}
	text := d.MustRun(t, "mender-app", "list", "--json")
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&apps))
	require.Len(t, apps, 1)
	return apps[0].Artifact
}

// Clients are the Mender clients that update a device.
var Clients = []struct {
	Name string
	Use  func(*testing.T, *bed.Device)
}{
	{"the client in Go", func(*testing.T, *bed.Device) {}},
	{"the client in C++", func(t *testing.T, d *bed.Device) { d.UseCppMender(t) }},
}

// ReleaseOver makes a release of the shop whose web service is a delta over old, which
// is in the older artifact.
func ReleaseOver(t *testing.T, d *bed.Device, version, older string, old, new bed.Image, options ...string) string {
	t.Helper()
	from, to := filepath.Join(t.TempDir(), "old.tar"), filepath.Join(t.TempDir(), "new.tar")
	require.NoError(t, bed.WriteArchive(from, old))
	require.NoError(t, bed.WriteArchive(to, new))
	return Generate(t, d, "shop", "shop-"+version, version, Compose(version), append(options, "--base", older,
		"--content", "docker-archive:"+from, "--image", "docker-archive:"+to, Archive(t, Stock(t)))...)
}

// OSUpdate makes an artifact with the provides of a default operating-system image,
// for an update module that does nothing.
func OSUpdate(t *testing.T, d *bed.Device) string {
	t.Helper()
	d.MustRun(t, "bash", "-ec", `cd /usr/share/mender/modules/v3
printf '#!/bin/sh\n[ $1 != SupportsRollback ] || echo Yes\n' >os
chmod 755 os`)
	file := d.Share("os-2.mender")
	content := filepath.Join(t.TempDir(), "os")
	require.NoError(t, os.WriteFile(content, []byte("2"), 0o644))
	text, err := exec.Command("mender-artifact", "write", "module-image", "-T", "os", "-t", bed.Type, "-n", "os-2", "-o", file, "-f", content,
		"--no-default-software-version", "--no-default-clears-provides",
		"--provides", "rootfs-image.version:os-2", "--clears-provides", "rootfs-image.*", "--clears-provides", "artifact_group").CombinedOutput()
	require.NoError(t, err, "%s", text)
	return file
}
