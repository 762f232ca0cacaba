package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reference is a test that a document names: its directory and its name.
var reference = regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)\\w+)`")

// Each promise of docs/SECURITY.md names tests, and those exist.
func TestPromisesAreTested(t *testing.T) {
	rows := 0
	for _, cells := range rowsOf(t, "../docs/SECURITY.md", "Promises") {
		if strings.TrimSpace(cells[1]) == "tested by" {
			continue
		}
		rows++
		named := namedTests(t, cells[1])
		require.NotEmpty(t, named, "no test holds: %s", cells[0])
		require.Len(t, named, strings.Count(cells[1], "`")/2, "something else than a test is named: %s", cells[1])
	}
	require.Greater(t, rows, 10)
}

// Each part of Mender that docs/MENDER.md says was run names tests, and those exist.
// What was not run says what was read.
func TestPartsOfMenderAreTested(t *testing.T) {
	run := 0
	for _, cells := range rowsOf(t, "../docs/MENDER.md", "What was run, and what was only read") {
		by := strings.TrimSpace(cells[2])
		if len(namedTests(t, by)) > 0 {
			run++
			continue
		}
		if by == "run by" {
			continue
		}
		require.True(t, strings.HasPrefix(by, "not run"), "no test is named: %s", cells[0])
		require.NotEmpty(t, strings.TrimSpace(cells[3]), "neither run nor read: %s", cells[0])
	}
	require.Greater(t, run, 4)
	text, err := os.ReadFile("../docs/MENDER.md")
	require.NoError(t, err)
	namedTests(t, string(text))
}

// rowsOf returns the cells of each row of the table in a section of a document. No
// test is named outside of the table.
func rowsOf(t *testing.T, document, section string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	_, part, ok := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, ok)
	part, _, ok = strings.Cut(part, "\n## ")
	require.True(t, ok)
	for line := range strings.Lines(part) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			require.Empty(t, reference.FindString(line), "not a row of the table: %s", line)
			continue
		}
		rows = append(rows, cells[1:len(cells)-1])
	}
	return rows
}

// namedTests returns the tests that a text names, which must exist.
func namedTests(t *testing.T, text string) [][]string {
	t.Helper()
	named := reference.FindAllStringSubmatch(text, -1)
	for _, n := range named {
		require.True(t, declares(t, n[1], n[2]), "there is no %s in %s", n[2], n[1])
	}
	return named
}

// declares reports whether a test file of the directory has the test.
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
