package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each promise of docs/SECURITY.md names tests, and those exist.
func TestPromisesAreTested(t *testing.T) {
	text, err := os.ReadFile("../docs/SECURITY.md")
	require.NoError(t, err)
	_, promises, ok := strings.Cut(string(text), "\n## Promises\n")
	require.True(t, ok)
	promises, _, ok = strings.Cut(promises, "\n## ")
	require.True(t, ok)
	reference := regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)\\w+)`")
	rows := 0
	for line := range strings.Lines(promises) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[2]) == "tested by" {
			require.Empty(t, reference.FindString(line), "not a row of the table: %s", line)
			continue
		}
		rows++
		named := reference.FindAllStringSubmatch(cells[2], -1)
		require.NotEmpty(t, named, "no test holds: %s", cells[1])
		require.Len(t, named, strings.Count(cells[2], "`")/2, "something else than a test is named: %s", cells[2])
		for _, n := range named {
			require.True(t, declares(t, n[1], n[2]), "there is no %s in %s", n[2], n[1])
		}
	}
	require.Greater(t, rows, 10)
}

// declares says whether a test file of the directory has the test.
func declares(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if regexp.MustCompile(`(?m)^func ` + test + `\(`).Match(text) {
			return true
		}
	}
	return false
}
