package cmd

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// `make bench` writes docs/BENCHMARKS.md anew: no word there is lost, because each is in
// testdata/bench, or between lines that it keeps, or in the part that it copies.
func TestBenchKeepsWords(t *testing.T) {
	script, err := os.ReadFile("../testdata/bench")
	require.NoError(t, err)
	document, err := os.ReadFile("../docs/BENCHMARKS.md")
	require.NoError(t, err)
	_, body, ok := strings.Cut(string(script), "cat <<END\n")
	require.True(t, ok)
	body, _, ok = strings.Cut(body, "\nEND\n")
	require.True(t, ok)
	text, _, ok := strings.Cut(string(document), "\n## On an emulated ARM device")
	require.True(t, ok)

	require.Empty(t, lostWords(text, body, string(script)))
	require.Equal(t, []string{"Nobody keeps this."}, lostWords(text+"\nNobody keeps this.\n", body, string(script)))
	require.Equal(t, []string{"<!-- kept: unknown -->"}, lostWords(text+"\n<!-- kept: unknown -->\nthis\n<!-- end -->\n", body, string(script)))
}

// lostWords returns the lines of the document that the script neither writes nor keeps.
// Tables, lists of pairs and lines of benchmarks are what it measures.
func lostWords(document, body, script string) (lost []string) {
	expansion := regexp.MustCompile(`\\\$\\\(.*\\\)|\\\$[a-z]+`) // as QuoteMeta writes $(…) and $name
	var written []*regexp.Regexp
	for line := range strings.Lines(body) {
		line = strings.NewReplacer("\\`", "`", `\$`, "\x00").Replace(strings.TrimSpace(line))
		if strings.HasPrefix(line, "$(") && strings.HasSuffix(line, ")") || line == "" {
			continue
		}
		pattern := expansion.ReplaceAllString(regexp.QuoteMeta(line), ".*")
		written = append(written, regexp.MustCompile("^"+strings.ReplaceAll(pattern, "\x00", `\$`)+"$"))
	}
	measured := regexp.MustCompile(`^(\||- [a-z0-9-]+: |Benchmark|The image has )`)
	kept := false
lines:
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "<!-- kept: "); ok {
			kept = true
			name = strings.TrimSuffix(name, " -->")
			if !strings.Contains(script, "$(kept "+name+")") && !strings.Contains(script, "$(kept '"+name+"')") {
				lost = append(lost, line)
			}
			continue
		}
		if line == "<!-- end -->" {
			kept = false
			continue
		}
		if kept || line == "" || measured.MatchString(line) {
			continue
		}
		for _, w := range written {
			if w.MatchString(line) {
				continue lines
			}
		}
		lost = append(lost, line)
	}
	return lost
}
