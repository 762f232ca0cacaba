package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/output/outputtest"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/generator/gentest"
)

// Every option that names an output treats a device, a pipe and a link there as package
// output says. An option that is not in the table fails the test.
func TestOutputs(t *testing.T) {
	if testing.Short() {
		t.Skip("calls app-gen 120 times; left out of -short")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for version, content := range map[string]string{"1": "old", "2": "new"} {
		gentest.DockerArchive(t, at("web"+version+".tar"), map[string]v1.Image{"shop/web:" + version: gentest.Image(t, "linux/amd64", gentest.Files{"a": gentest.Text("web", 20000) + content})})
	}
	require.NoError(t, os.Mkdir(at("shop"), 0o755))
	require.NoError(t, os.WriteFile(at("shop/compose.yaml"), []byte("services: {web: {image: \"shop/web:1\"}}\n"), 0o644))
	call := func(args ...string) *exec.Cmd {
		cmd := exec.Command("app-gen", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+dir)
		return cmd
	}
	generate := []string{"-a", "shop", "-n", "shop-1", "-t", "box", "-p", "linux/amd64", "--orchestrator", "docker-compose", "-m", "shop", "--image", "docker-archive:web1.tar"}
	for _, args := range [][]string{append(generate, "--output-path", "shop.mender"), {"delta", "encode", "web1.tar", "web2.tar", "-o", "delta"}} {
		said, err := outputtest.Said(call(args...))
		require.NoError(t, err, said)
	}
	begins := func(magic string) func(testing.TB, []byte) {
		return func(t testing.TB, content []byte) {
			t.Helper()
			require.Greater(t, len(content), 100)
			require.True(t, bytes.HasPrefix(content, []byte(magic)))
		}
	}
	document := func(t testing.TB, content []byte) {
		t.Helper()
		require.True(t, json.Valid(content))
	}
	require.NoError(t, os.Mkdir(at("releases"), 0o755))
	require.NoError(t, os.Link(at("shop.mender"), at("releases/shop.mender")))
	require.NoError(t, os.WriteFile(at("devices.csv"), []byte("device_type,version\nbox,shop-0\n"), 0o644))
	said, err := outputtest.Said(call("fleet", "plan", "--inventory", "devices.csv", "--releases", "releases", "-n", "shop-1", "-o", "plan.json"))
	require.NoError(t, err, said)
	for _, name := range []string{"key.pem", "other.pem"} {
		_, private, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		key, err := x509.MarshalPKCS8PrivateKey(private)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(at(name), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	}
	revoke := []string{"revoke", "--version", "1", "--key", "key.pem"}
	said, err = outputtest.Said(call(append(revoke, "-o", "revoked.json")...))
	require.NoError(t, err, said)
	delta, err := os.ReadFile(at("delta"))
	require.NoError(t, err)
	report := append(generate, "--output-path", "beside.mender")
	release := append([]string{"release", "shop-1"}, generate...)
	reported := append(release, "--output-path", "beside.mender")
	outputtest.Options(t, rootCommand(), map[string]outputtest.Output{
		"app-gen --output-path":              {Args: generate, Whole: begins("version\x00")},
		"app-gen --sbom":                     {Args: report, Whole: document},
		"app-gen --provenance":               {Args: report, Whole: document},
		"app-gen release --output-path":      {Args: release, Whole: begins("version\x00")},
		"app-gen release --sbom":             {Args: reported, Whole: document},
		"app-gen release --provenance":       {Args: reported, Whole: document},
		"app-gen by-reference --output-path": {Args: []string{"by-reference", "shop.mender", "place"}, Whole: begins("version\x00")},
		"app-gen fleet plan --output-path": {
			Args: []string{"fleet", "plan", "--inventory", "devices.csv", "--releases", "releases", "-n", "shop-1"}, Whole: document,
		},
		"app-gen fleet status --metrics":      {Args: []string{"fleet", "status", "plan.json", "store"}, Whole: begins("# HELP")},
		"app-gen fleet publish --output-path": {Args: []string{"fleet", "publish", "plan.json", "store"}, Whole: begins("version\x00")},
		"app-gen inspect --html":              {Args: []string{"inspect", "shop.mender"}, Whole: begins("<!DOCTYPE html>")},
		"app-gen diff --html":                 {Args: []string{"diff", "shop.mender", "shop.mender"}, Whole: begins("<!DOCTYPE html>")},
		"app-gen delta encode --output": {Args: []string{"delta", "encode", "web1.tar", "web2.tar"}, Whole: func(t testing.TB, content []byte) {
			t.Helper()
			require.Equal(t, delta, content)
		}},
		"app-gen delta apply --output": {Args: []string{"delta", "apply", "web1.tar", "delta"}, Whole: func(t testing.TB, content []byte) {
			t.Helper()
			require.Equal(t, "ustar", string(content[257:262]))
		}},
		"app-gen revoke --output-path": {Args: revoke, Whole: document},
		"app-gen revoke FILE":          {}, // of --output-path
		"app-gen sign --output-path":   {Args: []string{"sign", "revoked.json", "--key", "other.pem"}, Whole: document},

		"app-gen gen-man DIR": {}, // writes a page for each command into a directory
	}, outputtest.Command{
		Terminal: func(t testing.TB) (screen, terminal *os.File) { return devicetest.OpenTerminal(t, 80) },
	}, call)
}
