package daily

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// withHooks makes an artifact of an application of one service with scripts as hooks.
func withHooks(t *testing.T, d *bed.Device, version string, hooks map[string]string) string {
	t.Helper()
	manifests := t.TempDir()
	policy := fmt.Sprintf("version = %q\n", version)
	require.NoError(t, os.Mkdir(filepath.Join(manifests, "hooks"), 0o755))
	for name, script := range hooks {
		policy += fmt.Sprintf("[[hooks]]\nname = %q\n", name)
		require.NoError(t, os.WriteFile(filepath.Join(manifests, "hooks", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	compose := fmt.Sprintf("services:\n  stock:\n    image: shop/stock:1\n    environment: [VERSION=%s]\n    stop_grace_period: 1s\n", version)
	for name, text := range map[string]string{"docker-compose.yml": compose, "app.toml": policy} {
		require.NoError(t, os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o644))
	}
	return e2e.AppGen(t, d, "shop-"+version, manifests, "--application-name", "shop", "--software-version", version,
		"--orchestrator", "docker-compose", e2e.Archive(t, e2e.Stock(t)))
}

// Hooks are run around an update through a Mender client, see what runs, hand on, and
// refuse before it is touched.
func TestHooks(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app-docker-compose.conf"), []byte("HEALTH_WINDOW=300ms\n"), 0o644))
	trail := d.Share("trail")
	note := `echo "$MENDER_APP_HOOK $MENDER_APP_OPERATION $MENDER_APP_OLD_VERSION>$MENDER_APP_NEW_VERSION $MENDER_APP_MODE" >>` + trail
	trodden := func() []string {
		t.Helper()
		data, err := os.ReadFile(trail)
		require.NoError(t, err)
		require.NoError(t, os.Remove(trail))
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	e2e.Mender(t, d, "install", withHooks(t, d, "1.0", map[string]string{"check": note, "pre-load": note, "post-rollback": note}))
	e2e.Mender(t, d, "commit")
	require.Equal(t, []string{"check install >1.0 manual"}, trodden())

	before := e2e.Unchanging(d.MustState(t))
	out := e2e.MenderFails(t, d, "install", withHooks(t, d, "2.0", map[string]string{"pre-rollout": note + "; echo 'the door is open' >&2; exit 1"}))
	require.Contains(t, out, "refused: hook pre-rollout of shop: it exited with 1: the door is open")
	require.Equal(t, before, e2e.Unchanging(d.MustState(t)), "nothing that runs was touched")
	require.Equal(t, []string{"pre-load install 1.0>2.0 manual", "pre-rollout install 1.0>2.0 manual"}, trodden())

	ready := "[ -e " + trail + ".ready ] || { touch " + trail + ".ready; exit 75; }; " + note
	e2e.Mender(t, d, "install", withHooks(t, d, "3.0", map[string]string{
		"pre-rollout": note + `; echo kept >"$MENDER_APP_HANDOVER"`, "status": ready, "pre-rollback": note,
		"post-rollout": note + `; cat "$MENDER_APP_HANDOVER" >>` + trail,
	}))
	e2e.Mender(t, d, "commit")
	require.Equal(t, []string{
		"pre-load install 1.0>3.0 manual", "pre-rollout install 1.0>3.0 manual", "status install 1.0>3.0 manual", "post-rollout install 1.0>3.0 manual", "kept",
	}, trodden())
	d.MustRun(t, "mender-app", "rollback", "shop")
	require.Equal(t, []string{"pre-rollback rollback 3.0>1.0 manual", "post-rollback rollback 3.0>1.0 manual"}, trodden())

	// The device's own are run for any application; an application's are forbidden.
	dir := d.Path("/etc/mender/mender-app/hooks.d/pre-stop")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "10-note"), []byte("#!/bin/sh\n"+note+"\n"), 0o755))
	conf := d.Path("/etc/mender/mender-app.conf")
	settings, err := os.ReadFile(conf)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(conf, append([]byte("allow_hooks = false\n"), settings...), 0o644))
	d.MustRun(t, "mender-app", "stop", "shop")
	require.Equal(t, []string{"pre-stop stop 1.0> manual"}, trodden())
	out = e2e.MenderFails(t, d, "install", withHooks(t, d, "4.0", map[string]string{"check": note}))
	require.Contains(t, out, "hooks of shop: the artifact has the hook check, and allow_hooks = false")
	history := d.MustRun(t, "mender-app", "history", "shop", "--status", "refused")
	require.Contains(t, history, "shop-2.0")
	require.Contains(t, history, "shop-4.0")
}
