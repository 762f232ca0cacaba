package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Links of the documents to files of the project lead somewhere.
func TestLinksOfDocuments(t *testing.T) {
	documents, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob("../docs/decisions/*.md")
	require.NoError(t, err)
	documents = append(documents, decisions...)
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	found := 0
	for _, document := range append(documents, "../README.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			require.FileExists(t, filepath.Join(filepath.Dir(document), m[1]), document)
		}
	}
	require.Greater(t, found, 20)
}

// The documents' examples never purge the README's application: a user who tries
// them after the README would lose it.
func TestExamplesPurgeTheirOwn(t *testing.T) {
	documents, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	name := regexp.MustCompile(`--application-name (\S+)`)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	application := name.FindSubmatch(readme)
	require.NotNil(t, application, "the README makes an artifact")
	purge := regexp.MustCompile(`(?:PURGE|mender-app purge(?: --\S+)*) ([a-z]\S*)`)
	found := 0
	for _, document := range append(documents, "../README.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range purge.FindAllSubmatch(text, -1) {
			if !strings.Contains(string(m[1]), "/") {
				found++
				require.NotEqual(t, string(application[1]), string(m[1]), document)
			}
		}
	}
	require.GreaterOrEqual(t, found, 2)
}
