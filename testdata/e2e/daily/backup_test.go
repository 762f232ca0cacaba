package daily

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// stored makes an artifact of an application with a service, a volume, and the hooks of
// backup and restore, which note on /data/trail that they ran.
func stored(t *testing.T, d *bed.Device, app, version, port, policy string) string {
	t.Helper()
	manifests := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(manifests, "hooks"), 0o755))
	for _, name := range []string{"pre-backup", "post-backup", "pre-restore", "post-restore"} {
		policy += "[[hooks]]\nname = '" + name + "'\n"
		script := "#!/bin/sh\necho $MENDER_APP_HOOK $MENDER_APP_APPLICATION $(docker ps -q --filter label=com.docker.compose.project=$MENDER_APP_APPLICATION | wc -l) >>/data/trail\n"
		require.NoError(t, os.WriteFile(filepath.Join(manifests, "hooks", name), []byte(script), 0o755))
	}
	for name, text := range map[string]string{
		"app.toml": policy,
		"docker-compose.yml": `services:
  stock:
    image: shop/stock:1
    environment: [VERSION=` + version + `, "CITY=${CITY:-none}"]
    ports: ["` + port + `:8080"]
    restart: always
    stop_grace_period: 1s
    volumes: ["visits:/var/shop"]
volumes:
  visits:
    labels: {shelf: top}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o644))
	}
	return e2e.AppGen(t, d, app+"-"+version, manifests, "--application-name", app, "--software-version", version, "--application-version", version,
		"--orchestrator", "docker-compose", e2e.Archive(t, e2e.Stock(t)))
}

// Two applications are backed up on one device and restored on another one, with a store and
// an engine of its own: images, data, overrides, values, history and the hooks' order. An
// update afterwards finds everything as it would have been.
func TestBackupAndRestore(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	own := func(args ...string) string { t.Helper(); return d.MustRun(t, "mender-app", args...) }
	own("install", "--unsigned", "--commit", stored(t, d, "db", "1.0", "8082", ""))
	own("values", "set", "CITY=Oslo")
	own("install", "--unsigned", "--commit", stored(t, d, "shop", "1.0", "8081", "[[depends]]\nname = 'db'\nversion = '1\\..*'\n"))
	e2e.Visit(t, d, "1")
	e2e.Visit(t, d, "2")
	require.NoError(t, os.WriteFile(d.Share("limits.yaml"), []byte("services:\n  stock:\n    environment: [LANGUAGE=sv]\n"), 0o644))
	own("overrides", "set", "shop", d.Share("limits.yaml"))
	const rows = "/var/lib/docker/volumes/db_visits/_data"
	d.MustRun(t, "bash", "-ec", "cd "+rows+"; echo many >rows; chown 12:34 rows; chmod 640 rows; ln rows same; ln -s rows link; truncate -s 20M sparse")
	before := d.MustRun(t, "docker", "inspect", "--format", "{{.Id}}", "shop-stock-1")

	own("backup", "--without-data", d.Share("small.backup"))
	require.Equal(t, before, d.MustRun(t, "docker", "inspect", "--format", "{{.Id}}", "shop-stock-1"), "nothing was stopped")
	d.MustRun(t, "rm", "/data/trail")
	file := d.Share("all.backup")
	require.Contains(t, own("backup", file), "has db, shop")
	require.Equal(t, "pre-backup db 1\npost-backup db 1\npre-backup shop 1\npost-backup shop 1\n", d.MustRun(t, "cat", "/data/trail"))
	e2e.Visit(t, d, "3")
	refused, err := d.Run("mender-app", "restore", "--unsigned", file)
	require.NoError(t, err)
	require.Equal(t, 9, refused.Code, refused.Output())
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	fresh := bed.Start(t)
	e2e.ShortHealthWindow(t, fresh)
	require.NoError(t, fresh.WithoutMender())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(fresh.Share("all.backup"), text, 0o600))
	require.Contains(t, fresh.MustRun(t, "mender-app", "restore", "--unsigned", "--values", fresh.Share("all.backup")), "restored db, shop")
	e2e.Visit(t, fresh, "3")
	require.Equal(t, "pre-restore db 0\npost-restore db 1\npre-restore shop 0\npost-restore shop 1\n", fresh.MustRun(t, "cat", "/data/trail"))
	require.Equal(t, "many\n12 34 640 2\nrows\n20971520 0\n", fresh.MustRun(t, "bash", "-ec",
		"cd "+rows+"; cat rows; stat -c '%u %g %a %h' same; readlink link; stat -c '%s %b' sparse"))
	env := fresh.MustRun(t, "docker", "inspect", "--format", "{{.Config.Env}}", "shop-stock-1")
	require.Contains(t, env, "LANGUAGE=sv")
	require.Contains(t, env, "CITY=Oslo")
	require.Equal(t, "shop visits top\n", fresh.MustRun(t, "docker", "volume", "inspect", "--format",
		`{{index .Labels "com.docker.compose.project"}} {{index .Labels "com.docker.compose.volume"}} {{.Labels.shelf}}`, "shop_visits"))
	fresh.MustRun(t, "mender-app", "verify")
	fresh.MustRun(t, "mender-app", "health")
	require.Contains(t, fresh.MustRun(t, "mender-app", "overrides", "show", "shop"), "LANGUAGE=sv")
	require.Equal(t, 2, strings.Count(fresh.MustRun(t, "mender-app", "history", "shop"), "shop-1.0"), "that of the device before, and the restore")

	// What a purge keeps is in the way of a restore, which says so before it loads anything.
	fresh.MustRun(t, "mender-app", "purge", "--force", "shop")
	kept := e2e.Unchanging(fresh.MustState(t))
	refused, err = fresh.Run("mender-app", "restore", "--unsigned", fresh.Share("all.backup"), "shop")
	require.NoError(t, err)
	require.Equal(t, 9, refused.Code, refused.Output())
	require.Regexp(t, `volume visits \(\S+/shop_visits/_data\): mender-app purge --data shop removes it`, refused.Stderr)
	require.NotContains(t, refused.Stderr, "loading")
	require.Equal(t, kept, e2e.Unchanging(fresh.MustState(t)))
	fresh.MustRun(t, "mender-app", "purge", "--data", "shop")
	fresh.MustRun(t, "mender-app", "restore", "--unsigned", fresh.Share("all.backup"), "shop")
	e2e.Visit(t, fresh, "3")

	// One service and the application are restarted: the data stays.
	id := func() string { return fresh.MustRun(t, "docker", "inspect", "--format", "{{.Id}}", "shop-stock-1") }
	first := id()
	fresh.MustRun(t, "mender-app", "restart", "shop", "stock")
	require.NotEqual(t, first, id(), "its container was made again")
	e2e.Visit(t, fresh, "4")
	fresh.MustRun(t, "mender-app", "restart", "shop")
	e2e.Visit(t, fresh, "5")

	fresh.MustRun(t, "mender-app", "install", "--unsigned", "--commit", stored(t, fresh, "shop", "1.1", "8081", ""))
	e2e.Visit(t, fresh, "6")
	require.Contains(t, fresh.MustRun(t, "docker", "inspect", "--format", "{{.Config.Env}}", "shop-stock-1"), "VERSION=1.1")
}
