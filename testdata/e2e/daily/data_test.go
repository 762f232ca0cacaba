package daily

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// withData makes an artifact of an application that counts visits in a volume. The hook
// migrate is a script in the directory of the volume; status tells whether it is ready.
func withData(t *testing.T, d *bed.Device, version, migrate, status string) string {
	t.Helper()
	return withDataAt(t, d, "visits", version, migrate, status)
}

// withDataAt is withData with the visits at a source of a mount.
func withDataAt(t *testing.T, d *bed.Device, source, version, migrate, status string) string {
	t.Helper()
	manifests := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(manifests, "hooks"), 0o755))
	compose := fmt.Sprintf(`services:
  stock:
    image: shop/stock:1
    environment: [VERSION=%s]
    ports: ["8081:8080"]
    restart: always
    stop_grace_period: 1s
    volumes: ["%s:/var/shop"]
volumes:
  visits:
`, version, source)
	for name, text := range map[string]string{
		"docker-compose.yml": compose,
		"app.toml": `[data]
volumes = ["` + source + `"]
snapshot = true
migrate = "hooks/migrate"
[[hooks]]
name = "migrate"
[[hooks]]
name = "status"
`,
		"hooks/migrate": "#!/bin/sh\nset -e\ncd \"$MENDER_APP_DATA/visits\"\n" + migrate + "\n",
		"hooks/status":  "#!/bin/sh\n" + status + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o755))
	}
	return e2e.AppGen(t, d, "shop-"+version, manifests, "--application-name", "shop", "--software-version", version,
		"--orchestrator", "docker-compose", e2e.Archive(t, e2e.Stock(t)))
}

// The data of a volume goes forward by a migration, and back with its release: when the
// client takes an update back, when the new release fails, when the update module is
// killed in the middle of a migration, and by hand. visit adds one to the number.
func TestDataGoesWithItsRelease(t *testing.T) {
	d := e2e.Device(t)
	const migrate = `echo $(($(cat visits) + 100)) >visits`
	e2e.Mender(t, d, "install", withData(t, d, "1.0", migrate, ""))
	e2e.Mender(t, d, "commit")
	e2e.Visit(t, d, "1")
	two := withData(t, d, "2.0", migrate, "")
	said := e2e.MenderSays(t, d, "install", two)
	require.Contains(t, said, "the data is copied")
	require.Contains(t, said, "the data is migrated")
	e2e.Visit(t, d, "102")
	status := d.MustRun(t, "mender-app", "status", "shop")
	require.Regexp(t, `data +copy .* took `, status)
	require.Regexp(t, `data +migrate .* took `, status)
	e2e.Mender(t, d, "rollback")
	e2e.Visit(t, d, "2")
	events := d.MustRun(t, "mender-app", "events", "shop")
	for _, data := range []string{"copy", "migrate", "restore"} {
		require.Contains(t, events, `"data":"`+data+`"`)
	}
	require.Regexp(t, `last +shop-2\.0 rolled-back .*, \d+\.\d s of it on data`, d.MustRun(t, "mender-app", "status", "shop"))

	out := e2e.MenderFails(t, d, "install", withData(t, d, "3.0", migrate, "echo 'no till'; exit 1"))
	require.Contains(t, out, "no till")
	e2e.Visit(t, d, "3")
	out = e2e.MenderFails(t, d, "install", withData(t, d, "4.0", "echo half >visits; kill -9 $PPID", ""))
	require.Contains(t, out, "killed")
	e2e.Visit(t, d, "4")

	e2e.Mender(t, d, "install", two)
	e2e.Mender(t, d, "commit")
	e2e.Visit(t, d, "105")
	d.MustRun(t, "mender-app", "rollback", "shop")
	e2e.Visit(t, d, "5")
	d.MustRun(t, "mender-app", "rollback", "shop", "shop-2.0")
	e2e.Visit(t, d, "106")
	kept := d.MustRun(t, "bash", "-c", "cd /data/mender-app/shop/releases && ls -d */data")
	require.Regexp(t, `^\d+-shop-1\.0/data\n$`, kept)

	// What mounts the volume too could write to it while it is copied.
	d.MustRun(t, "docker", "create", "--name", "reader", "-v", "shop_visits:/other", "shop/stock:1")
	out = e2e.MenderFails(t, d, "install", withData(t, d, "5.0", migrate, ""))
	require.Contains(t, out, "data.volumes of shop: the manifests have no volume visits")
	require.Contains(t, out, "the container reader uses it too")
	e2e.Visit(t, d, "107")
}

// A directory that no release brings is data as a volume is: it goes with its release, a
// restart of the machine leaves it alone, a backup has it, and a purge leaves it.
func TestDataDirectoryGoesWithItsRelease(t *testing.T) {
	d := e2e.Device(t)
	const migrate = `echo $(($(cat visits) + 100)) >visits`
	e2e.Mender(t, d, "install", withDataAt(t, d, "./visits", "1.0", migrate, ""))
	e2e.Mender(t, d, "commit")
	e2e.Visit(t, d, "1")
	e2e.Mender(t, d, "install", withDataAt(t, d, "./visits", "2.0", migrate, ""))
	e2e.Visit(t, d, "102")
	e2e.Mender(t, d, "rollback")
	e2e.Visit(t, d, "2")
	d.CrashEngine()
	require.NoError(t, d.StartEngine())
	e2e.Visit(t, d, "3")

	d.MustRun(t, "mender-app", "backup", d.Share("all.backup"))
	d.MustRun(t, "mender-app", "purge", "--force", "shop")
	require.Equal(t, "3\n", d.MustRun(t, "cat", "/data/mender-app/shop/data/visits/visits"))
	d.MustRun(t, "mender-app", "purge", "--data", "shop")
	require.Equal(t, "0\n", d.MustRun(t, "bash", "-c", "ls -A /data/mender-app/shop 2>/dev/null | wc -l"))
	d.MustRun(t, "mender-app", "restore", "--force", "--unsigned", d.Share("all.backup"))
	e2e.Visit(t, d, "4")
}
