package store

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFormatDocument compares FORMAT.md with the types: each persisted field is
// in the table of its heading, and nothing else is.
func TestFormatDocument(t *testing.T) {
	text, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	sections := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^#+ `).Split(string(text), -1) {
		heading, body, _ := strings.Cut(part, "\n")
		sections[heading] = body
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	names := func(heading string) (names []string) {
		for _, m := range row.FindAllStringSubmatch(sections[heading], -1) {
			names = append(names, m[1])
		}
		return names
	}
	for heading, v := range map[string]any{
		"app.json": State{}, "deployment": Deployment{}, "service": ServiceChoice{}, "member": Member{}, "leader": Leader{}, "overrides": Overrides{}, "release.json": Release{}, "history/<app>.jsonl": Record{},
		"suspects.json": suspects{}, "trust.json": Trust{}, "hold.json": Hold{}, "suspect": Suspect{}, "asked": Asked{}, "step": Step{}, "measured": Measured{}, "downtime": Downtime{}, "changed": Changed{}, "change": Change{}, "totals": Totals{},
		"history/<app>.logs/<number>.jsonl": LogEntry{},
	} {
		fields := fieldNames(reflect.TypeOf(v))
		if _, ok := v.(Record); ok {
			fields = fieldNames(reflect.TypeFor[line]()) // with its other fields
		}
		require.Equal(t, sorted(fields), sorted(names(heading)), heading)
	}
	for _, status := range Statuses() {
		require.Contains(t, sections["history/<app>.jsonl"], "`"+status+"`")
	}
	require.Contains(t, string(text), AdoptedID)
	require.Contains(t, string(text), fmt.Sprintf("# The store, format %d\n", Format))
	formats := regexp.MustCompile("(?m)^\\| `format` \\| .*$").FindAllString(string(text), -1)
	require.NotEmpty(t, formats)
	for _, row := range formats {
		require.True(t, strings.HasSuffix(row, fmt.Sprintf(" | %d |", Format)), row)
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}
