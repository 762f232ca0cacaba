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
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	found := 0
	for _, document := range append(documents, "../README.md") {
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
