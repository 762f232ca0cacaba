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

// migrating makes an artifact of an application that counts visits in a volume. A command
// of the new release's own image, in a service of the manifests, changes the number.
func migrating(t *testing.T, d *bed.Device, version, service, words string) string {
	t.Helper()
	manifests := t.TempDir()
	compose := fmt.Sprintf(`services:
  stock:
    image: shop/stock:1
    environment: [VERSION=%s]
    ports: ["8081:8080"]
    restart: always
    stop_grace_period: 1s
    volumes: ["visits:/var/shop"]
volumes:
  visits:
`, version)
	policy := fmt.Sprintf("[data]\nvolumes = [\"visits\"]\nsnapshot = true\nmigrate = { service = %q, command = [%s], timeout = \"20s\" }\n", service, words)
	for name, text := range map[string]string{"docker-compose.yml": compose, "app.toml": policy} {
		require.NoError(t, os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o644))
	}
	return e2e.AppGen(t, d, "shop-"+version, manifests, "--application-name", "shop", "--application-version", version, "--software-version", version,
		"--orchestrator", "docker-compose", e2e.Archive(t, e2e.Stock(t)))
}

// A command of the new release migrates the data before that one is started; if it fails,
// or does not end, old image and old data are back together.
func TestDataMigratedByTheNewRelease(t *testing.T) {
	d := e2e.Device(t)
	e2e.Mender(t, d, "install", migrating(t, d, "1.0", "stock", `"-add", "100"`))
	e2e.Mender(t, d, "commit")
	e2e.Visit(t, d, "1")
	two := migrating(t, d, "2.0", "stock", `"-add", "100"`)
	r, err := d.Mender("install", two)
	require.NoError(t, err)
	require.Zero(t, r.Code, r.Output())
	require.Contains(t, r.Output(), "stock | 1 visits become 101, from 1.0 to 2.0")
	e2e.Visit(t, d, "102")
	e2e.Mender(t, d, "rollback")
	e2e.Visit(t, d, "2")

	alone := func() {
		t.Helper()
		require.Equal(t, "shop-stock-1\n", d.MustRun(t, "docker", "ps", "--all", "--format", "{{.Names}}"))
	}
	out := e2e.MenderFails(t, d, "install", migrating(t, d, "3.0", "stock", `"-add", "-5"`))
	require.Contains(t, out, "data.migrate of shop")
	require.Contains(t, out, "the command in stock exited with 3: shop: 5 visits cannot be unmade")
	e2e.Visit(t, d, "3")
	alone()
	// Without -add it is the service itself, which never ends.
	out = e2e.MenderFails(t, d, "install", migrating(t, d, "4.0", "stock", `"-name", "other"`))
	require.Contains(t, out, "the command did not end within 20s")
	e2e.Visit(t, d, "4")
	alone()

	e2e.Mender(t, d, "install", two)
	e2e.Mender(t, d, "commit")
	e2e.Visit(t, d, "105")
	d.MustRun(t, "mender-app", "rollback", "shop")
	e2e.Visit(t, d, "5")
	alone()
}
