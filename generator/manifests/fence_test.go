package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// canary is what no project may read here.
const canary = "canary-of-the-build-host"

// namesFiles are the fields of compose-go that name a file, each in a project that names %s.
// "" is one that nothing here or on a device reads.
var namesFiles = map[string]string{
	"services.*.build.context":               "",
	"services.*.build.additional_contexts.*": "",
	"services.*.build.ssh.*":                 "",
	"services.*.develop.watch.*.path":        "",
	"jobs.*.build.context":                   "",
	"jobs.*.build.additional_contexts.*":     "",
	"jobs.*.build.ssh.*":                     "",
	"jobs.*.env_file.*.path":                 "", // a device refuses jobs, and nothing here reads what they name
	"jobs.*.label_file.*":                    "",
	"jobs.*.volumes.*":                       "",
	"services.*.env_file.*.path":             "services: {web: {image: web, env_file: [{path: %s}]}}",
	"services.*.label_file.*":                "services: {web: {image: web, label_file: [%s]}}",
	"services.*.extends.file":                "services: {web: {extends: {file: %s, service: web}}}",
	"services.*.volumes.*":                   "services: {web: {image: web, volumes: ['%s:/x']}}",
	"jobs.*.extends.file":                    "services: {web: {image: web}}\njobs: {web: {extends: {file: %s, service: web}}}",
	"services.*.pre_start.*.env_file.*.path": "services: {web: {image: web, pre_start: [{image: web, env_file: [{path: %s}]}]}}",
	"services.*.pre_start.*.label_file.*":    "services: {web: {image: web, pre_start: [{image: web, label_file: [%s]}]}}",
	"services.*.pre_start.*.volumes.*":       "services: {web: {image: web, pre_start: [{image: web, volumes: ['%s:/x']}]}}",
	"configs.*.file":                         "services: {web: {image: web, configs: [c]}}\nconfigs: {c: {file: %s}}",
	"secrets.*.file":                         "services: {web: {image: web, secrets: [c]}}\nsecrets: {c: {file: %s}}",
	"include.path":                           "include: [%s]\nservices: {web: {image: web}}",
	"include.project_directory":              "include: [{path: own.yaml, project_directory: %s}]\nservices: {web: {image: web}}",
	"include.env_file":                       "include: [{path: own.yaml, env_file: %s}]\nservices: {web: {image: web}}",
	"volumes.*":                              "services: {web: {image: web, volumes: ['d:/x']}}\nvolumes: {d: {driver_opts: {type: none, o: bind, device: %s}}}",
}

// ofTheDevice are those whose absolute names are files of the device: they are not read here.
var ofTheDevice = []string{"services.*.env_file.*.path", "services.*.label_file.*", "services.*.volumes.*", "services.*.pre_start.*.env_file.*.path",
	"services.*.pre_start.*.label_file.*", "services.*.pre_start.*.volumes.*", "configs.*.file", "secrets.*.file", "volumes.*"}

// TestFence: whatever field of a Compose file names a file outside of the directory, by its
// path, by a variable, or by a link, nothing of that file gets anywhere.
func TestFence(t *testing.T) {
	var module struct{ Dir string }
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-json", "github.com/compose-spec/compose-go/v2").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &module))
	source, err := os.ReadFile(filepath.Join(module.Dir, "paths", "resolve.go"))
	require.NoError(t, err)
	known := 0
	for _, m := range regexp.MustCompile(`(?m)^\t\t"([^"]+)":\s+r\.`).FindAllStringSubmatch(string(source), -1) {
		require.Contains(t, namesFiles, m[1], "a field that names a file, and nobody has decided what happens to it")
		known++
	}
	require.Len(t, namesFiles, known)

	for field, text := range namesFiles {
		if text == "" {
			continue
		}
		t.Run(field, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "shop")
			outside := filepath.Join(base, "outside")
			write := func(name, text string) {
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
				require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
			}
			// It is a Compose file, an env file and a file of labels.
			stranger := "services: {web: {image: " + canary + "}, other: {image: " + canary + "}}\n"
			if strings.HasSuffix(field, "include.env_file") || strings.Contains(field, "env_file") || strings.Contains(field, "label_file") {
				stranger = "TAG=" + canary + "\n"
			}
			write(filepath.Join(outside, "file"), stranger)
			write(filepath.Join(outside, ".env"), "TAG="+canary+"\n")
			for way, name := range map[string]string{
				"up": "../outside/file", "absolute": filepath.Join(outside, "file"), "link": "./link", "link on the way": "./way/file",
				"variable": "${UP}/outside/file", "default": "${NONE:-../outside}/file",
			} {
				if strings.HasSuffix(field, "project_directory") {
					name = strings.TrimSuffix(name, "/file")
				}
				require.NoError(t, os.RemoveAll(dir))
				write(filepath.Join(dir, ".env"), "UP=..\n")
				write(filepath.Join(dir, "own.yaml"), "services: {own: {image: 'own:${TAG:-1}'}}\n")
				target := "../outside/file"
				if strings.HasSuffix(field, "project_directory") {
					target = "../outside"
				}
				require.NoError(t, os.Symlink(target, filepath.Join(dir, "link")))
				require.NoError(t, os.Symlink("../outside", filepath.Join(dir, "way")))
				write(filepath.Join(dir, "compose.yaml"), fmt.Sprintf(text, name)+"\n")
				found, err := Compose(t.Context(), dir, ComposeOptions{})
				if err != nil {
					require.NotContains(t, err.Error(), canary, way)
					var e *Error
					require.ErrorAs(t, err, &e, way)
					continue
				}
				require.NotContains(t, fmt.Sprintf("%+v", found), canary, way)
				// What is named is of the device, or is refused before it is shipped.
				if way == "absolute" && slices.Contains(ofTheDevice, field) {
					continue
				}
				only, err := (*Ignore)(nil).Select(dir, found.Needs)
				require.NoError(t, err)
				require.ErrorContains(t, CheckTree(dir, only), "leaves the manifests directory", way)
			}
		})
	}
}

// TestFenceFollowsVariables: an env file of an include counts for what it includes, as for
// Compose, and so do the names that it makes.
func TestFenceFollowsVariables(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "shop")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	for name, text := range map[string]string{
		"outside.yaml":          "services: {other: {image: " + canary + "}}\n",
		"shop/compose.yaml":     "include: [sub/inc.yaml]\nservices: {web: {image: 'web:1'}}\n",
		"shop/sub/.env":         "MORE=../../outside\n",
		"shop/sub/inc.yaml":     "include: ['${MORE:-inside}.yaml']\nservices: {inc: {image: 'inc:1'}}\n",
		"shop/sub/inside.yaml":  "services: {inside: {image: 'inside:1'}}\n",
		"shop/sub/more.yaml":    "services: {more: {image: 'more:${TAG}'}}\n",
		"shop/sub/more.env":     "TAG=7\n",
		"shop/sub/extends.yaml": "services: {base: {image: 'base:1'}}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(base, name), []byte(text), 0o600))
	}
	_, err := Compose(t.Context(), dir, ComposeOptions{})
	require.ErrorContains(t, err, "../../outside.yaml is outside the manifests directory")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/.env"), []byte("MORE=more\nTAG=8\n"), 0o600))
	found, err := Compose(t.Context(), dir, ComposeOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"inc:1", "more:8", "web:1"}, found.Images())

	// compose-go would look for these below the directory in which app-gen was started
	for _, entry := range []string{"env_file: more.env", "project_directory: deeper"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/inc.yaml"), []byte("include: [{path: more.yaml, "+entry+"}]\nservices: {inc: {image: 'inc:1'}}\n"), 0o600))
		_, err = Compose(t.Context(), dir, ComposeOptions{})
		require.ErrorContains(t, err, "sub/inc.yaml:1: ")
		require.ErrorContains(t, err, "in different places when the file is included itself")
	}
}

// TestHostEnvironment: of the build host's environment only what is named counts.
func TestHostEnvironment(t *testing.T) {
	for _, name := range []string{"CI_TOKEN", "WITH_DEFAULT", "PASSED_ON", "OF_SECRET", "COMPOSE_PROFILES", "COMPOSE_FILE", "COMPOSE_PROJECT_NAME"} {
		t.Setenv(name, canary)
	}
	dir := tree(t, "compose.yaml", `
services:
  web:
    image: registry.example/${CI_TOKEN}/web:${WITH_DEFAULT:-1}
    environment: [PASSED_ON, "NAME=${COMPOSE_PROJECT_NAME}"]
    secrets: [s]
secrets:
  s: {environment: OF_SECRET}
`)
	host := func(name string) bool { _, ok := os.LookupEnv(name); return ok }
	found, err := Compose(t.Context(), dir, ComposeOptions{Host: host})
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%+v", found), canary)
	require.Empty(t, found.Ship)
	said := strings.Join(append(found.Warnings, found.Notes...), "\n")
	require.Contains(t, said, "compose.yaml:4: the variable CI_TOKEN is not set: it is empty on the device; set it in .env, pass this host's with --env-from-host CI_TOKEN")
	require.Contains(t, said, "compose.yaml:4: the variable WITH_DEFAULT of this host does not count: --env-from-host WITH_DEFAULT passes it")
	require.Contains(t, said, "compose.yaml:5: the variable PASSED_ON of this host does not count: --env-from-host PASSED_ON passes it")
	require.Contains(t, said, "the variable OF_SECRET, which is not set")
	require.Contains(t, said, "--env-from-host OF_SECRET")
	require.Contains(t, said, "the variable COMPOSE_PROFILES of this host does not count")
	require.Contains(t, said, "the variable COMPOSE_FILE of this host does not count")

	found, err = Compose(t.Context(), dir, ComposeOptions{Host: host, Environ: []string{"CI_TOKEN=shop", "PASSED_ON=1"}})
	require.NoError(t, err)
	require.Equal(t, []string{"registry.example/shop/web:1"}, found.Images())
	require.Equal(t, []Variable{{"CI_TOKEN", "shop"}, {"PASSED_ON", "1"}}, found.Ship)
}

// TestOwnEnvLink: the .env of a project is not a link to a file elsewhere.
func TestOwnEnvLink(t *testing.T) {
	base := tree(t, "shop/compose.yaml", "services: {web: {image: 'web:${TAG:-1}'}}\n", "env", "TAG="+canary+"\n")
	require.NoError(t, os.Symlink("../env", filepath.Join(base, "shop/.env")))
	_, err := Compose(t.Context(), filepath.Join(base, "shop"), ComposeOptions{})
	require.EqualError(t, err, ".env: leads out of the manifests directory, by a link")
}
