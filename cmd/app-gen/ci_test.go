package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"go/version"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/generator/gentest"
)

const ci = "../../packaging/ci"

// applicationIn makes a directory with an application in the directory app, and programs
// in bin as the container image has them. It returns the directory.
func applicationIn(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	gentest.DockerArchive(t, filepath.Join(dir, "web.tar"), map[string]v1.Image{"shop/web:1": gentest.Image(t, "linux/amd64", gentest.Files{"a": "1"})})
	script, err := filepath.Abs(filepath.Join(ci, "release"))
	require.NoError(t, err)
	for _, d := range []string{"app/shop", "app/releases", "bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for name, text := range map[string]string{
		"app/shop/compose.yaml": "services: {web: {image: \"shop/web:1\"}}\n",
		"app/app-gen.toml": `application-name = "shop"
device-type = ["box"]
platform = ["linux/amd64"]
orchestrator = "docker-compose"
manifests-dir = "shop"
image = ["docker-archive:../web.tar"]
output-path = "releases/{name}.mender"
`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	// This test program is app-gen when it is called so (TestMain).
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "bin/app-gen")))
	require.NoError(t, os.Symlink(script, filepath.Join(dir, "bin/app-gen-release")))
	return dir
}

// inCI runs a command of a recipe as its CI does, with nothing of this environment but
// what programs need.
func inCI(t *testing.T, dir, command string, env map[string]string) (string, error) {
	t.Helper()
	c := exec.Command("bash", "-e", "-c", command)
	c.Dir = dir
	c.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + dir, "DOCKER_CONFIG=" + dir}
	for name, value := range env {
		c.Env = append(c.Env, name+"="+value)
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(ci, name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

// The last step of the GitHub Action, run with the environment that the Action gives it.
func TestGitHubAction(t *testing.T) {
	var action struct {
		Inputs  map[string]struct{ Default string }
		Outputs map[string]struct{ Value string }
		Runs    struct {
			Steps []struct {
				ID, Run string
				Env     map[string]string
			}
		}
	}
	readYAML(t, "action.yml", &action)
	dir := applicationIn(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	given := map[string]string{
		"name": "shop-1", "directory": "app",
		"key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}
	step := action.Runs.Steps[len(action.Runs.Steps)-1]
	path, err := filepath.Abs(ci)
	require.NoError(t, err)
	env := map[string]string{"GITHUB_ACTION_PATH": path, "GITHUB_OUTPUT": filepath.Join(dir, "output")}
	input := regexp.MustCompile(`^\$\{\{ inputs\.(\w+) \}\}$`)
	for name, value := range step.Env {
		m := input.FindStringSubmatch(value)
		require.NotNil(t, m, "an input in a command could run as one: %s", value)
		require.Contains(t, action.Inputs, m[1])
		env[name] = action.Inputs[m[1]].Default
		if v, ok := given[m[1]]; ok {
			env[name] = v
		}
	}
	require.Len(t, step.Env, len(action.Inputs))
	require.Equal(t, "${{ steps."+step.ID+".outputs.artifacts }}", action.Outputs["artifacts"].Value)

	out, err := inCI(t, dir, step.Run, env)
	require.NoError(t, err, out)
	output, err := os.ReadFile(filepath.Join(dir, "output"))
	require.NoError(t, err)
	require.Equal(t, "artifacts<<end-of-artifacts\napp/releases/shop-1.mender\nend-of-artifacts\n", string(output))
	pub := filepath.Join(dir, "pub.pem")
	require.NoError(t, os.WriteFile(pub, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644))
	out, err = inCI(t, dir, "app-gen inspect app/releases/shop-1.mender --key pub.pem", nil)
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^signature: +verified$`, out)
}

// The job for GitLab, with the variables that it sets.
func TestGitLabJob(t *testing.T) {
	var file map[string]struct {
		Variables map[string]string
		Script    []string
		Cache     struct{ Paths []string }
	}
	readYAML(t, "gitlab.yml", &file)
	job := file["app-gen"]
	dir := applicationIn(t)
	server := packages(t, "secret").URL
	env := map[string]string{"APP_GEN_DIRECTORY": "app", "APP_GEN_OUTPUT": "made", "APP_GEN_FIRST": "true"}
	for name, value := range job.Variables {
		env[name] = os.Expand(value, func(v string) string {
			known := map[string]string{"CI_PROJECT_NAME": "shop", "CI_COMMIT_TAG": "7", "CI_PROJECT_DIR": dir,
				"CI_API_V4_URL": server, "CI_PROJECT_ID": "12", "CI_JOB_TOKEN": "secret"}
			require.Contains(t, known, v)
			return known[v]
		})
	}
	out, err := inCI(t, dir, strings.Join(job.Script, "\n"), env)
	require.NoError(t, err, out)
	require.FileExists(t, filepath.Join(dir, "app/releases/shop-7.mender"))
	made, err := os.ReadFile(filepath.Join(dir, "made"))
	require.NoError(t, err)
	require.Equal(t, "app/releases/shop-7.mender\n", string(made))
	require.DirExists(t, filepath.Join(dir, job.Cache.Paths[0]), "what the job caches is what app-gen keeps")
}

// packages serves files as a generic package registry does: PUT and GET with a token.
func packages(t *testing.T, token string) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	files := map[string][]byte{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Job-Token") != token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPut {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			files[r.URL.Path] = b
			w.WriteHeader(http.StatusCreated)
			return
		}
		b, ok := files[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s
}

// The recipe in clean clones, where releases are kept elsewhere: the second release is a
// delta, the job of the first that is run again changes nothing, and a device can go
// from nothing to the newest.
func TestRecipeInCleanClones(t *testing.T) {
	for _, program := range []string{"git", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("missing in CI: %s", program)
			}
			t.Skipf("needs %s", program)
		}
	}
	dir := applicationIn(t)
	images := map[string]v1.Image{}
	for _, v := range []string{"1", "2"} {
		images[v] = gentest.Image(t, "linux/amd64", gentest.Files{"base": gentest.Text("base", 100_000)}, gentest.Files{"a": v})
	}
	// a directory without releases is in no clone
	require.NoError(t, os.Remove(filepath.Join(dir, "app/releases")))
	out, err := inCI(t, dir, "git init -q app && git -C app add . && git -C app -c user.name=x -c user.email=x@example.com commit -qm x", nil)
	require.NoError(t, err, out)
	n := 0
	release := func(place, v string, env map[string]string) (string, error) {
		gentest.DockerArchive(t, filepath.Join(dir, "web.tar"), map[string]v1.Image{"shop/web:1": images[v]})
		n++
		clone := fmt.Sprintf("clone-%d", n)
		all := map[string]string{"APP_GEN_NAME": "shop-" + v, "APP_GEN_DIRECTORY": clone, "APP_GEN_RELEASES": place, "APP_GEN_RELEASES_HEADER": "JOB-TOKEN: secret"}
		maps.Copy(all, env)
		out, err := inCI(t, dir, "git clone -q app "+clone+" && app-gen-release", all)
		return out, err
	}
	first := map[string]string{"APP_GEN_FIRST": "true"}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "kept"), 0o755))
	for _, place := range []string{packages(t, "secret").URL + "/generic/shop", filepath.Join(dir, "kept")} {
		out, err := release(place, "1", nil)
		require.Error(t, err)
		require.Contains(t, out, "--require-base: there is no older release to build on")
		out, err = release(place, "1", first)
		require.NoError(t, err, out)
		out, err = release(place, "2", nil)
		require.NoError(t, err, out)
		require.Contains(t, out, `"base": "shop/web:1"`)
		for _, v := range []string{"1", "2"} { // each job again, in a clone that has none of it
			out, err = release(place, v, first)
			require.NoError(t, err, out)
			require.Contains(t, out, `"unchanged": true`)
		}
		out, err = inCI(t, dir, "app-gen releases --check "+place, map[string]string{"APP_GEN_RELEASES_HEADER": "JOB-TOKEN: secret"})
		require.NoError(t, err, out)
		require.Regexp(t, `(?m)^shop-2 .* shop-1 `, out)
		require.Regexp(t, `(?m)^shop-1 .* anything `, out)
		require.NotContains(t, out, "damaged")
	}
	out, err = release(packages(t, "other").URL, "2", nil)
	require.Error(t, err)
	require.Contains(t, out, "the server refuses (401): set APP_GEN_RELEASES_HEADER")
}

// Releases in a registry, each a tag, as oras push writes them.
func TestReleasesInARegistry(t *testing.T) {
	dir := applicationIn(t)
	host := gentest.Registry(t, "", "")
	push := func(name string) {
		b, err := os.ReadFile(filepath.Join(dir, "app/releases", name+".mender"))
		require.NoError(t, err)
		img, err := mutate.AppendLayers(empty.Image, static.NewLayer(b, "application/vnd.mender-artifact"))
		require.NoError(t, err)
		gentest.Push(t, host+"/releases/shop:"+name, img, "", "")
	}
	run := func(args string) (string, error) {
		return inCI(t, filepath.Join(dir, "app"), "app-gen --bases-from oci:"+host+"/releases/shop "+args, map[string]string{"PATH": filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")})
	}
	out, err := run("-n shop-1 --require-base")
	require.Error(t, err)
	require.Contains(t, out, "--require-base")
	out, err = run("-n shop-1")
	require.NoError(t, err, out)
	push("shop-1")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "app/releases")))
	out, err = run("-n shop-2 --require-base")
	require.NoError(t, err, out)
	require.Contains(t, out, "omitted")
	push("shop-2")
	out, err = run("-n shop-1 --require-base") // the first job again
	require.NoError(t, err, out)
	require.Contains(t, out, "unchanged")
	out, err = inCI(t, dir, "app-gen releases --check oci:"+host+"/releases/shop", nil)
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^shop-2 .* shop-1 `, out)
}

// What is wrong ends the script with app-gen's code, and without an artifact.
func TestReleaseScriptFails(t *testing.T) {
	dir := applicationIn(t)
	for _, c := range []struct {
		env  map[string]string
		code int
		said string
	}{
		{map[string]string{"APP_GEN_DIRECTORY": "app"}, 2, "release: APP_GEN_NAME is the name of the artifact"},
		{map[string]string{"APP_GEN_NAME": "shop-1"}, 2, "release: . has no app-gen.toml: run app-gen init there"},
		{map[string]string{"APP_GEN_NAME": "shop-1", "APP_GEN_DIRECTORY": "none"}, 2, "release: APP_GEN_DIRECTORY is no directory: none"},
		{map[string]string{"APP_GEN_NAME": "shop-1", "APP_GEN_DIRECTORY": "app", "APP_GEN_KEY": "no key"}, 2, `"error":`},
	} {
		out, err := inCI(t, dir, "app-gen-release", c.env)
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, c.code, exit.ExitCode(), out)
		require.Contains(t, out, c.said)
	}
	made, err := filepath.Glob(filepath.Join(dir, "app/releases/*"))
	require.NoError(t, err)
	require.Empty(t, made)
}

// What the container image is made of is there, and its Go builds the project.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(ci, "Containerfile"))
	require.NoError(t, err)
	copies := regexp.MustCompile(`(?m)^COPY (\S+) (\S+)$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, copies, 2)
	for _, m := range copies {
		_, err := os.Stat(filepath.Join("../..", m[1]))
		require.NoError(t, err)
	}
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	needs := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(module)
	has := regexp.MustCompile(`golang:(\d+\.\d+)-`).FindSubmatch(text)
	require.NotNil(t, has)
	require.Equal(t, version.Lang("go"+string(needs[1])), "go"+string(has[1]))
}
