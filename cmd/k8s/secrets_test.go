package main

import (
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// canary is in each secret of TestSecretsAppearNowhere, and in nothing else. numeral is in
// those that YAML takes for numbers.
const canary, numeral = "canary5d2e", "5550172943"

// A device is given the login of its registry, with which images are pushed, and an artifact
// brings Secrets: the login with which the node pulls them, and passwords that somebody forgot
// to quote. Right and wrong logins are used, of both kinds, and the API server refuses Secrets
// and overrides. Nothing that is printed, kept in the history, reported, served or seen in the
// list of processes has any of it. On the device only the configuration and the manifests do,
// and only root can read them.
func TestSecretsAppearNowhere(t *testing.T) {
	t.Parallel()
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var let, pulled, tokens atomic.Int64
	var bearer atomic.Bool
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/token":
			tokens.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		case bearer.Load():
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="edge"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
		case user != canary+"-user" || password != canary+"-push" && password != canary+"-pull":
			w.Header().Set("WWW-Authenticate", `Basic realm="edge"`)
			w.WriteHeader(http.StatusUnauthorized)
		case password == canary+"-pull":
			pulled.Add(1)
			images.ServeHTTP(w, r)
		default:
			let.Add(1)
			images.ServeHTTP(w, r)
		}
	}))
	defer door.Close()
	host := strings.TrimPrefix(door.URL, "http://")

	d := newDevice(t)
	program, conf := filepath.Join(d.dir, "bin/mender-app"), filepath.Join(d.dir, "etc/mender-app-k8s.conf")
	settings, err := os.ReadFile(conf)
	require.NoError(t, err)
	configure := func(target string) {
		t.Helper()
		require.NoError(t, os.WriteFile(conf, fmt.Appendf(settings, "K8S_IMAGE_TARGET=%s\n", target), 0o644))
		require.NoError(t, os.Chmod(conf, 0o644))
	}
	seen := bed.Processes(t, canary, numeral)
	var said strings.Builder
	run := func(fails bool, args ...string) string {
		t.Helper()
		out, err := d.command(args...).CombinedOutput()
		require.Equal(t, fails, err != nil, "%v: %s", args, out)
		said.Write(out)
		return string(out)
	}
	install := func(fails bool, artifact string) string {
		t.Helper()
		return run(fails, "mender", "--data", d.dir+"/data", "--no-syslog", "install", artifact)
	}
	report := filepath.Join(t.TempDir(), "report.tar.gz")
	reported := func() string {
		t.Helper()
		run(false, program, "report", "-o", report)
		text, err := exec.Command("tar", "xOzf", report).Output()
		require.NoError(t, err)
		return string(text)
	}
	login := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: login}\ntype: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: '{\"auths\": {\"%s\": {\"username\": \"%s-user\", \"password\": \"%[2]s-pull\"}}}'\n", host, canary)
	release := func(version string, more ...string) string {
		text := strings.ReplaceAll(manifests("1", append(more, login)...), "      containers:\n", "      imagePullSecrets: [{name: login}]\n      containers:\n")
		return d.artifact(version, text, "--image="+d.image("1"))
	}
	one := release("1")

	// Logins that are none, and wrong ones at registries that ask in the one way and the other.
	for _, target := range []string{
		"registry://" + canary + "-user:" + canary + "%zz@" + host + "/edge",
		"registry://" + canary + "-user:" + canary + "-push@" + host + "/Edge",
		"registry://" + canary + "-user:" + canary + "-push@",
		"'registry://" + canary + "-user:" + canary + " push@" + host + "/edge'",
		"docker://" + canary + "-user:" + canary + "-push@" + host,
		"registry://" + canary + "-user:" + canary + "/" + canary + "@" + canary + "@" + host + "/edge",
	} {
		configure(target)
		install(true, one)
		run(true, d.submodule(), "LIST", d.app)
		said.WriteString(reported())
		fi, err := os.Stat(conf)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), fi.Mode().Perm(), target)
	}
	configure("registry://" + canary + "-user:" + canary + "-wrong@" + host + "/edge")
	require.Contains(t, install(true, one), "registry "+host)
	bearer.Store(true)
	install(true, one)
	require.Positive(t, tokens.Load())
	bearer.Store(false)

	configure("registry://" + canary + "-user:" + canary + "-push@" + host + "/edge")
	install(false, one)
	run(false, "mender", "--data", d.dir+"/data", "--no-syslog", "commit")
	require.Equal(t, "1", d.says())
	require.Positive(t, let.Load(), "the image was pushed with the login of the device")
	require.Positive(t, pulled.Load(), "the node pulled it with the login of the manifests")

	// Secrets that the API server refuses.
	for i, secret := range []string{
		"stringData: {one: " + numeral + "}",
		"stringData: {one: " + numeral + ", two: " + numeral + "}",
		"data: {one: " + canary + "-not-base64}",
		"data: [" + canary + "]",
		"type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: " + canary + "}",
		"stringData: {'a b': " + canary + "}",
		"nonsense: " + numeral,
	} {
		out := install(true, release(fmt.Sprint(i+2), "apiVersion: v1\nkind: Secret\nmetadata: {name: bad}\n"+secret+"\n"))
		require.Contains(t, out, "Secret/bad", secret)
	}
	patch := filepath.Join(t.TempDir(), "patch.yaml")
	for _, env := range []string{
		"{name: A, value: " + numeral + "}",
		"{name: A, value: " + numeral + "}, {name: B, value: " + numeral + "}",
		"{name: A, value: [" + canary + "]}",
		"{name: 'A=', value: " + canary + "}",
		"{name: A, value: *" + canary + "}",
	} {
		text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: web, env: [" + env + "]}]}}}\n"
		require.NoError(t, os.WriteFile(patch, []byte(text), 0o600))
		require.Contains(t, run(true, program, "overrides", "set", d.app, patch), "override", env)
	}

	// What may be seen of all that.
	for _, args := range [][]string{
		{"status"}, {"status", d.app, "--json"}, {"status", "--stored", "--json"}, {"releases", d.app, "--json"}, {"history", d.app, "--json"}, {"history", d.app, "1"},
		{"events", "--json"}, {"metrics"}, {"inventory"}, {"verify"},
	} {
		run(false, append([]string{program}, args...)...)
	}
	_, _ = d.command(program, "doctor").CombinedOutput()
	text := reported()
	require.Contains(t, text, "K8S_IMAGE_TARGET = registry://[removed]@"+host+"/edge\n")
	said.WriteString(text)
	for line := range strings.Lines(said.String()) {
		require.NotContains(t, line, canary)
		require.NotContains(t, line, numeral)
	}
	require.Empty(t, seen())

	// Where the secrets are on the device.
	require.NoError(t, filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && (strings.Contains(string(text), canary) || strings.Contains(string(text), numeral)) {
			rel, err := filepath.Rel(d.dir, path)
			require.NoError(t, err)
			manifest, err := filepath.Match("store/*/releases/*/manifests/app.yaml", rel)
			require.NoError(t, err)
			require.True(t, manifest || rel == "etc/mender-app-k8s.conf", rel)
		}
		return err
	}))
}
