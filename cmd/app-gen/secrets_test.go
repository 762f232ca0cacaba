package main

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/places/placestest"
)

// TestSecretsAppearNowhere gives app-gen a secret in each place where it takes one. Nothing
// that it prints, reports or ships has any of them.
func TestSecretsAppearNowhere(t *testing.T) {
	if testing.Short() {
		t.Skip("makes artifacts; left out of -short")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		require.NoError(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	registry := gentest.Registry(t, "builder", "canary-registry")
	auth := base64.StdEncoding.EncodeToString([]byte("builder:canary-registry"))
	web := gentest.Image(t, "linux/amd64", gentest.Files{"a": gentest.Text("web", 20000)})
	gentest.Push(t, registry+"/shop/web:1", web, "builder", "canary-registry")
	gentest.DockerArchive(t, at("web.tar"), map[string]v1.Image{"shop/web:1": web})
	write("docker/config.json", `{"auths":{"`+registry+`":{"auth":"`+auth+`"}}}`)
	write("shop/compose.yaml", "services: {web: {image: '"+registry+"/shop/web:${TAG:-1}', environment: [CI_TOKEN]}}\n")
	write("reports/.keep", "")
	server := placestest.Web(t, "canary-header")
	place := strings.Replace(server.URL, "://", "://canary-user:canary-password@", 1) + "/r"
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	gone := strings.Replace(down.URL, "://", "://canary-user:canary-password@", 1) + "/r?token=canary-token"

	var said strings.Builder
	call := func(fails bool, args ...string) {
		t.Helper()
		cmd := exec.Command("app-gen", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+at("cache"), "DOCKER_CONFIG="+at("docker"), places.HeaderVariable+"=JOB-TOKEN: canary-header",
			"CI_TOKEN=canary-env", "TAG=canary-tag", "AWS_SECRET_ACCESS_KEY=canary-aws", pinVariable+"=canary-pin")
		out, err := cmd.CombinedOutput()
		require.Equal(t, fails, err != nil, "%v: %s", args, out)
		said.Write(out)
	}
	generate := []string{"-a", "shop", "-t", "box", "-p", "linux/amd64", "--orchestrator", "docker-compose", "-m", "shop"}
	made := append(generate, "-n", "shop-1", "--output-path", "shop-1.mender", "--sbom", "reports/sbom.json", "--provenance", "reports/provenance.json")
	call(false, append(made, "--bases-from", place, "--json")...)
	call(false, append(made, "--replace", "--bases-from", place)...)
	call(false, "releases", "push", place, "shop-1.mender")
	call(false, "releases", place)
	call(false, "releases", place, "--json")
	call(false, append(generate, "-n", "shop-2", "--bases-from", place, "--output-path", "shop-2.mender")...)
	call(false, "inspect", "shop-1.mender", "--json")
	call(false, "diff", "shop-1.mender", "shop-2.mender", "--json")
	for _, wrong := range []string{gone, "https://canary-user:canary-password@ex ample/", "ftp://canary-user:canary-password@h/", "s3://canary-user:canary@b/p", "oci:canary-user:canary@h/p"} {
		call(true, "releases", wrong)
		call(true, append(made, "--replace", "--bases-from", wrong, "--json")...)
		call(true, "releases", "push", wrong, "shop-1.mender")
	}
	call(true, "by-reference", "shop-1.mender", "content", "--source", "https://h/p?token=canary-source", "-o", "by.mender")
	write("docker/config.json", `{"auths":{"`+registry+`":{"auth":"`+base64.StdEncoding.EncodeToString([]byte("builder:canary-wrong"))+`"}}}`)
	call(true, append(made, "--replace", "--no-cache")...)
	require.NotContains(t, said.String(), "canary")
	require.NotContains(t, said.String(), auth)

	for _, name := range []string{"shop-1.mender", "shop-2.mender", "reports/sbom.json", "reports/provenance.json"} {
		text, err := os.ReadFile(at(name))
		require.NoError(t, err)
		require.NotContains(t, string(text), "canary", name)
	}
	out, err := exec.Command("sh", "-c", "tar xOf "+at("shop-1.mender")+" data/0000.tar | tar xO manifests.tar.gz | tar xzO; tar xOf "+at("shop-1.mender")+" header.tar | tar xO 2>/dev/null").Output()
	require.NoError(t, err)
	require.NotContains(t, string(out), "canary")
	require.Contains(t, string(out), "services:")
	left, err := exec.Command("grep", "-rl", "canary", at("cache"), at("reports")).Output()
	require.Error(t, err, "%s", left) // 1: none
}
