package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// The definitions for hosted services can be read, and call targets that the Makefile has.
// JSON is YAML.
func TestHostedServicesCallTargets(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	workflows, err := filepath.Glob("../.github/workflows/*.yml")
	require.NoError(t, err)
	called := map[string]bool{}
	for _, file := range append(workflows, "../.gitlab-ci.yml", "../.devcontainer/devcontainer.json") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, new(map[string]any)), file)
		for _, m := range regexp.MustCompile(`\bmake ([a-z-]+(?: [a-z-]+)*)`).FindAllStringSubmatch(string(text), -1) {
			for _, target := range regexp.MustCompile(`\S+`).FindAllString(m[1], -1) {
				require.Regexp(t, `(?m)^`+target+`:`, string(makefile), file)
				called[filepath.Base(file)+" "+target] = true
			}
		}
	}
	for _, want := range []string{"test.yml check", "test.yml test", ".gitlab-ci.yml check", ".gitlab-ci.yml test", "devcontainer.json setup"} {
		require.Contains(t, called, want)
	}
}
