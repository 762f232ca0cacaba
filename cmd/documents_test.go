package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Links of the documents lead to files of the project, and to headings that are there.
func TestLinksOfDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	found := 0
	for _, document := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(readDocument(t, document), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			found++
			to := filepath.Join(filepath.Dir(document), m[1])
			if m[1] == "" {
				to = document
			}
			require.FileExists(t, to, "%s: %s", document, m[0])
			if m[2] != "" {
				require.Contains(t, anchors(t, to), m[2], "%s: %s", document, m[0])
			}
		}
	}
	require.Greater(t, found, 200)
}

// documents returns the Markdown files of the project.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	require.NoError(t, err)
	for path := range strings.Lines(string(out)) {
		paths = append(paths, filepath.Join("..", strings.TrimSpace(path)))
	}
	return paths
}

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// anchors returns the anchors of a document's headings, as forges and MkDocs make them: the
// words in lower case, without punctuation, with a hyphen for each space.
func anchors(t *testing.T, path string) (list []string) {
	t.Helper()
	heading := regexp.MustCompile(`(?m)^#+ +(.*)$`)
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for _, m := range heading.FindAllStringSubmatch(readDocument(t, path), -1) {
		text := strings.ToLower(strings.TrimSpace(link.ReplaceAllString(m[1], "$1")))
		list = append(list, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return r
			}
			return -1
		}, text))
	}
	return list
}

// Code is not indented after a list of dashes: it would become the last item's text.
func TestCodeIsOutsideOfLists(t *testing.T) {
	swallowed := regexp.MustCompile(`(?m)^- .*\n(?:  .*\n)*\n(    \S.*)$`)
	require.Equal(t, "    go test", swallowed.FindStringSubmatch("- one\n- two\n  words\n\n    go test\n")[1])
	for _, document := range documents(t) {
		for _, m := range swallowed.FindAllStringSubmatch(readDocument(t, document), -1) {
			t.Errorf("%s: text or another heading is missing between a list and %q", document, m[1])
		}
	}
}

// Tests that documents name are there.
func TestDocumentsNameTests(t *testing.T) {
	for _, document := range documents(t) {
		namedTests(t, readDocument(t, document))
	}
}

// The documents' examples never purge the README's application: a user who tries
// them after the README would lose it.
func TestExamplesPurgeTheirOwn(t *testing.T) {
	name := regexp.MustCompile(`--application-name (\S+)`)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	application := name.FindSubmatch(readme)
	require.NotNil(t, application, "the README makes an artifact")
	purge := regexp.MustCompile(`(?:PURGE|mender-app purge(?: --\S+)*) ([a-z]\S*)`)
	found := 0
	for _, document := range documents(t) {
		if strings.Contains(document, "/coming-from/") {
			continue // the way back of an application that has just come
		}
		for _, m := range purge.FindAllStringSubmatch(readDocument(t, document), -1) {
			if !strings.Contains(m[1], "/") {
				found++
				require.NotEqual(t, string(application[1]), m[1], document)
			}
		}
	}
	require.GreaterOrEqual(t, found, 2)
}
