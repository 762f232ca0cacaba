package migration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// A project that Compose started by hand becomes an application, and is given back, by the
// commands of docs/coming-from/plain-compose.md. Its volume keeps its data throughout.
func TestFromPlainCompose(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	w := e2e.Watch(t, d)
	require.NoError(t, bed.WriteArchive(d.Share("web.tar"), e2e.Web(t, "1", "")))
	require.NoError(t, bed.WriteArchive(d.Share("stock.tar"), e2e.Stock(t)))
	require.NoError(t, os.WriteFile(d.Share("compose.yaml"), []byte(e2e.Compose("1")), 0o644))
	d.MustRun(t, "bash", "-ec", `
		docker load -q -i `+d.Share("web.tar")+`
		docker load -q -i `+d.Share("stock.tar")+`
		install -D `+d.Share("compose.yaml")+` /opt/shop/compose.yaml
		docker compose --project-directory /opt/shop up -d`)
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "1")

	document, err := os.ReadFile(filepath.Join(bed.Repository(), "docs/coming-from/plain-compose.md"))
	require.NoError(t, err)
	host, device := commandsOf(string(document), "$ "), commandsOf(string(document), "# ")
	require.Len(t, device, 6, "%q", device)
	run := func(command string) {
		t.Helper()
		d.MustRun(t, "sh", "-ec", "cd "+d.Share("")+"\n"+command)
	}
	run("mkdir -p project && cd project && " + strings.Join(host[:2], " && ")) // openssl makes the keys
	key, public := d.Share("releases.key"), d.Share("releases.pub")
	e2e.Release(t, d, "1", "", "--key", key)

	run(device[0])
	e2e.Says(t, w, "web 1") // it runs on meanwhile
	run(device[1])
	require.Empty(t, d.MustState(t).Containers)
	run(device[2])
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "2")
	run(device[3])

	e2e.Release(t, d, "2", "crash", "--key", key)
	r, err := d.Run("mender-app", "install", "--key", public, d.Share("shop-2.mender"))
	require.NoError(t, err)
	require.Equal(t, 6, r.Code, r.Output())
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "3")

	run(device[4])
	require.Empty(t, d.MustState(t).Containers)
	// This device has no registry: what Compose would pull comes from the files.
	run("docker load -q -i web.tar && docker load -q -i stock.tar")
	run(device[5])
	e2e.Says(t, w, "web 1")
	e2e.Visit(t, d, "4")
}

// commandsOf returns the commands of a document after a prompt, in the order of the text.
func commandsOf(document, prompt string) (commands []string) {
	for line := range strings.Lines(document) {
		text := strings.TrimLeft(line, " ")
		if command, ok := strings.CutPrefix(text, prompt); ok && len(line)-len(text) >= 4 {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}
