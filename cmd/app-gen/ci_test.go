package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"go/version"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/places/placestest"
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

// gitHub is the last step of the GitHub Action, with the environment that the Action gives it
// for inputs.
func gitHub(t *testing.T, dir string, given map[string]string) (script string, env map[string]string) {
	t.Helper()
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
	step := action.Runs.Steps[len(action.Runs.Steps)-1]
	path, err := filepath.Abs(ci)
	require.NoError(t, err)
	env = map[string]string{"GITHUB_ACTION_PATH": path, "GITHUB_OUTPUT": filepath.Join(dir, "output")}
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
	return step.Run, env
}

func TestGitHubAction(t *testing.T) {
	dir := applicationIn(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	script, env := gitHub(t, dir, map[string]string{
		"name": "shop-1", "directory": "app",
		"key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	})
	out, err := inCI(t, dir, script, env)
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

// gitLab is the job for GitLab, with the variables that it sets. The paths of the cache are
// those that it keeps.
func gitLab(t *testing.T, known map[string]string) (script string, env map[string]string, cache []string) {
	t.Helper()
	var file map[string]struct {
		Variables map[string]string
		Script    []string
		Cache     struct{ Paths []string }
	}
	readYAML(t, "gitlab.yml", &file)
	job := file["app-gen"]
	env = map[string]string{}
	for name, value := range job.Variables {
		env[name] = os.Expand(value, func(v string) string {
			require.Contains(t, known, v)
			return known[v]
		})
	}
	return strings.Join(job.Script, "\n"), env, job.Cache.Paths
}

func TestGitLabJob(t *testing.T) {
	dir := applicationIn(t)
	script, env, cache := gitLab(t, map[string]string{"CI_PROJECT_NAME": "shop", "CI_COMMIT_TAG": "7", "CI_PROJECT_DIR": dir,
		"CI_API_V4_URL": placestest.Web(t, "secret").URL, "CI_PROJECT_ID": "12", "CI_JOB_TOKEN": "secret"})
	maps.Copy(env, map[string]string{"APP_GEN_DIRECTORY": "app", "APP_GEN_OUTPUT": "made", "APP_GEN_FIRST": "true"})
	out, err := inCI(t, dir, script, env)
	require.NoError(t, err, out)
	require.FileExists(t, filepath.Join(dir, "app/releases/shop-7.mender"))
	made, err := os.ReadFile(filepath.Join(dir, "made"))
	require.NoError(t, err)
	require.Equal(t, "app/releases/shop-7.mender\n", string(made))
	require.DirExists(t, filepath.Join(dir, cache[0]), "what the job caches is what app-gen keeps")
}

// Each recipe in clean clones, with each kind of place where releases are kept: the second
// release is a delta, a job that is run again changes nothing, and a device can go from
// nothing to the newest.
func TestRecipesInCleanClones(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: git")
		}
		t.Skip("needs git")
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

	packages := placestest.Web(t, "secret").URL
	header := map[string]string{"APP_GEN_RELEASES_HEADER": "JOB-TOKEN: secret"}
	registry := "oci:" + gentest.Registry(t, "", "") + "/releases/"
	bucket := placestest.S3(t, "builds", nil)
	// recipe returns the command that makes a release of the clone, and its environment.
	type recipe func(clone, v, place string, first bool) (string, map[string]string)
	said := map[bool]string{true: "true", false: "false"}
	shell := func(clone, v, place string, first bool) (string, map[string]string) {
		return "app-gen-release", map[string]string{"APP_GEN_NAME": "shop-" + v, "APP_GEN_DIRECTORY": clone, "APP_GEN_RELEASES": place, "APP_GEN_FIRST": said[first]}
	}
	inGitHub := func(clone, v, place string, first bool) (string, map[string]string) {
		return gitHub(t, dir, map[string]string{"name": "shop-" + v, "directory": clone, "releases": place, "header": header["APP_GEN_RELEASES_HEADER"], "first": said[first]})
	}
	inGitLab := func(clone, v, place string, first bool) (string, map[string]string) {
		script, env, _ := gitLab(t, map[string]string{"CI_PROJECT_NAME": "shop", "CI_COMMIT_TAG": v, "CI_PROJECT_DIR": filepath.Join(dir, clone),
			"CI_API_V4_URL": packages, "CI_PROJECT_ID": "12", "CI_JOB_TOKEN": "secret"})
		if place != "" { // a variable of the project
			env["APP_GEN_RELEASES"] = place
		}
		env["APP_GEN_FIRST"] = said[first]
		return "cd " + clone + "\n" + script, env
	}
	n := 0
	for _, c := range []struct {
		name   string
		recipe recipe
		place  string // "" is the one of the recipe, kept
		kept   string
		env    map[string]string
	}{
		{"shell, directory", shell, filepath.Join(dir, "kept"), "", nil},
		{"shell, packages", shell, packages + "/generic/shell", "", header},
		{"shell, bucket", shell, "s3://builds/shell", "", bucket},
		{"shell, registry", shell, registry + "shell", "", nil},
		{"GitHub, packages", inGitHub, packages + "/generic/github", "", header},
		{"GitHub, bucket", inGitHub, "s3://builds/github", "", bucket},
		{"GitHub, registry", inGitHub, registry + "github", "", nil},
		{"GitLab, packages", inGitLab, "", packages + "/projects/12/packages/generic/shop/releases", header},
		{"GitLab, bucket", inGitLab, "s3://builds/gitlab", "", bucket},
		{"GitLab, registry", inGitLab, registry + "gitlab", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			release := func(v string, first bool) (string, error) {
				gentest.DockerArchive(t, filepath.Join(dir, "web.tar"), map[string]v1.Image{"shop/web:1": images[v]})
				n++
				clone := fmt.Sprintf("clone-%d", n)
				script, env := c.recipe(clone, v, c.place, first)
				maps.Copy(env, c.env)
				return inCI(t, dir, "git clone -q app "+clone+"\n"+script, env)
			}
			out, err := release("1", false)
			require.Error(t, err)
			require.Contains(t, out, "--require-base: there is no older release to build on")
			out, err = release("1", true)
			require.NoError(t, err, out)
			require.Contains(t, out, "added shop-1.mender")
			out, err = release("2", false)
			require.NoError(t, err, out)
			require.Contains(t, out, `"base": "shop/web:1"`)
			for _, v := range []string{"1", "2"} { // each job again, in a clone that has none of it
				out, err = release(v, true)
				require.NoError(t, err, out)
				require.Contains(t, out, `"unchanged": true`)
				require.Contains(t, out, "unchanged shop-"+v+".mender")
			}
			out, err = inCI(t, dir, "app-gen releases --check "+cmp.Or(c.place, c.kept), c.env)
			require.NoError(t, err, out)
			require.Regexp(t, `(?m)^shop-2 .* shop-1 `, out)
			require.Regexp(t, `(?m)^shop-1 .* anything `, out)
			require.NotContains(t, out, "damaged")
		})
	}
	script, env := shell("app", "2", placestest.Web(t, "other").URL, false)
	out, err = inCI(t, dir, script, env)
	require.Error(t, err)
	require.Contains(t, out, "the server refuses (401): set APP_GEN_RELEASES_HEADER")
}

// What is pushed is an artifact, and never replaces another.
func TestReleasesPush(t *testing.T) {
	dir := applicationIn(t)
	run := func(command string) (string, error) {
		return inCI(t, filepath.Join(dir, "app"), command, map[string]string{"PATH": filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")})
	}
	out, err := run("app-gen -n shop-1 -q && app-gen releases push ../kept releases/shop-1.mender")
	require.NoError(t, err, out)
	require.Contains(t, out, "added shop-1.mender in ../kept")
	out, err = run("app-gen releases push ../kept releases/shop-1.mender")
	require.NoError(t, err, out)
	require.Contains(t, out, "unchanged shop-1.mender in ../kept")
	for command, says := range map[string]string{
		"app-gen -n shop-1 -q --output-path other/shop-1.mender --application-version 3 && app-gen releases push ../kept other/shop-1.mender": "../kept has another shop-1.mender",
		"app-gen releases push ../kept app-gen.toml":                             "app-gen.toml",
		"cp releases/shop-1.mender shop && app-gen releases push ../kept shop-1": "shop-1: no such file",
		"app-gen releases push ../kept":                                          "needs FILE.mender",
		"app-gen releases push http://example.com/x releases/shop-1.mender":      "is not a place of releases",
	} {
		out, err := run("mkdir -p other && " + command)
		require.Error(t, err)
		require.Contains(t, out, says)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "kept/*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "kept/shop-1.mender")}, kept)
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
