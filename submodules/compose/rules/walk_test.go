package rules

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWalk: names that depend on the variables of an include's own env file, hooks, jobs and
// files that Compose looks for in different places are followed, and refused outside.
func TestWalk(t *testing.T) {
	unset := func(string) (string, bool) { return "", false }
	for name, c := range map[string]struct{ compose, included, env, kind string }{
		"hook":                {"services: {web: {image: web, pre_start: [{image: web, env_file: ../secret}]}}\n", "", "", "env-file"},
		"labels of a hook":    {"services: {web: {image: web, pre_start: [{image: web, label_file: [../secret]}]}}\n", "", "", "label-file"},
		"job":                 {"jobs: {j: {extends: {file: ../secret, service: web}}}\n", "", "", "extends"},
		"variable of include": {"include: [sub/inc.yaml]\n", "services: {inc: {image: inc, env_file: '${AT:-own}'}}\n", "AT=../../secret\n", "env-file"},
		"link to variables":   {"include: [sub/inc.yaml]\n", "services: {inc: {image: inc}}\n", "link", "include"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "manifests")
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
			write := func(name, text string) {
				require.NoError(t, os.WriteFile(filepath.Join(base, name), []byte(text), 0o600))
			}
			write("secret", "A: 1\n") // YAML, and an env file too
			write("manifests/compose.yaml", c.compose)
			write("manifests/sub/inc.yaml", c.included)
			if c.env == "link" {
				require.NoError(t, os.Symlink("../../secret", filepath.Join(dir, "sub/.env")))
			} else {
				write("manifests/sub/.env", c.env)
			}
			files := []string{filepath.Join(dir, "compose.yaml")}
			err := CheckFiles(dir, files, nil, Settings{}, unset)
			require.ErrorContains(t, err, "outside the manifests: refused unless ALLOW_OUTSIDE in mender-app-docker-compose.conf has "+c.kind)
			require.NoError(t, CheckFiles(dir, files, nil, Settings{Outside: []string{c.kind}}, unset))
		})
	}

	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("compose.yaml", "include: [sub/inc.yaml]\n")
	write("sub/inc.yaml", "include: [{path: deep/inc.yaml, env_file: ../own.env}]\n")
	write("sub/deep/inc.yaml", "services: {web: {image: web}}\n")
	err := CheckFiles(dir, []string{filepath.Join(dir, "compose.yaml")}, nil, Settings{}, unset)
	require.ErrorContains(t, err, "env-file names ../own.env in a file that is included itself")
	write("sub/inc.yaml", "include: [{path: deep/inc.yaml, env_file: own.env}]\n")
	require.NoError(t, CheckFiles(dir, []string{filepath.Join(dir, "compose.yaml")}, nil, Settings{}, unset))
}
