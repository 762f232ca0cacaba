package manifests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// services are those of a project as a real Compose prints them, with {top} for dir.
func services(t *testing.T, program, dir string, args ...string) (name string, list map[string]any) {
	t.Helper()
	c := exec.Command(program, append(args, "config", "--format", "json")...)
	c.Dir, c.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := c.Output()
	require.NoError(t, err)
	var project struct {
		Name     string
		Services map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(out), dir, "{top}")), &project))
	return project.Name, project.Services
}

// A project whose files lie in a subdirectory is on a device what it is for Compose here.
func TestLift(t *testing.T) {
	const redis = `services:
  redis:
    image: "redis:${TAG}-${TOP}"
    env_file: [own.env]
    volumes: ["./data:/data", "../common:/common:ro"]
    extends: {file: ../common/base.yaml, service: base}
  extra: {image: extra, profiles: [p]}
`
	files := map[string]string{
		"services/redis.yaml": redis, "services/more.yaml": "services:\n  redis: {environment: {A: $$b}, volumes: [\"./more:/more\"]}\n",
		"services/own.env": "X=${TAG}\n", "services/.env": "TAG=2\nCOMPOSE_PROFILES=p\n",
		"common/base.yaml": "services:\n  base: {labels: {a: b}, env_file: base.env}\n", "common/base.env": "B=1\n",
	}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{files, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		files map[string]string
		named []string
		own   string // the name that the files give the project
	}{
		"COMPOSE_FILE":         {files: with(map[string]string{".env": "COMPOSE_FILE=services/redis.yaml\nTAG=1\nTOP=t"})},
		"COMPOSE_FILE, two":    {files: with(map[string]string{".env": "COMPOSE_FILE=services/redis.yaml:services/more.yaml\n"})},
		"option":               {files: with(map[string]string{".env": "TAG=1\nTOP=t\n"}), named: []string{"services/redis.yaml"}},
		"option, two, a name":  {files: with(map[string]string{"services/more.yaml": "name: shop-${TAG}\nservices: {redis: {init: true}}\n"}), named: []string{"services/redis.yaml", "services/more.yaml"}, own: "shop-2"},
		"the name in the .env": {files: with(map[string]string{"services/.env": "TAG=2\nCOMPOSE_PROJECT_NAME=till\n"}), named: []string{"services/redis.yaml"}, own: "till"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, c.files)
			o := ComposeOptions{Files: c.named}
			lift, err := LiftOf(dir, o)
			require.NoError(t, err)
			tree := filepath.Join(t.TempDir(), "copy")
			require.NoError(t, CopyTree(dir, tree, nil))
			require.NoError(t, lift.Write(tree))
			found, err := Compose(t.Context(), tree, ComposeOptions{Files: []string{ProjectFile}})
			require.NoError(t, err)
			require.NoError(t, AddVariables(tree, found.Ship))
			require.NoError(t, Judge(t.Context(), tree, nil))
			require.Subset(t, found.Needs, []string{ProjectFile, "services/redis.yaml", "services/.env", "services/own.env", "services/data", "common", "common/base.yaml", ".env"})
			_, err = Compose(t.Context(), tree, ComposeOptions{Files: []string{ProjectFile}, Version: "2.0"})
			require.ErrorContains(t, err, "include needs Docker Compose 2.19.1")
			for version, program := range realComposes(t) {
				var args []string
				for _, f := range c.named {
					args = append(args, "-f", f)
				}
				was, want := services(t, program, dir, args...)
				is, got := services(t, program, tree)
				require.Equal(t, want, got, version)
				if c.own != "" {
					require.Equal(t, []string{c.own, c.own}, []string{was, is}, version)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		files map[string]string
		named []string
	}{
		"the default":    {files: with(map[string]string{"compose.yaml": redis}), named: nil},
		"at the top":     {files: with(map[string]string{"compose.yaml": redis}), named: []string{"compose.yaml", "services/more.yaml"}},
		"no such option": {files: with(map[string]string{".env": "COMPOSE_FILE=../other.yaml\n"}), named: nil},
	} {
		lift, err := LiftOf(writeFiles(t, c.files), ComposeOptions{Files: c.named})
		require.NoError(t, err, name)
		require.Nil(t, lift, name)
	}
	dir := writeFiles(t, with(map[string]string{ProjectFile: "x"}))
	_, err := LiftOf(dir, ComposeOptions{Files: []string{"services/redis.yaml"}})
	require.ErrorContains(t, err, ProjectFile+": app-gen writes a file of this name")
}
