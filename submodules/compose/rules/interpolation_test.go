package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/template"
	"github.com/stretchr/testify/require"
)

// TestInterpolationIsBounded: texts whose variables take compose-go minutes are refused at
// once, in each file that is read, and the largest that are not take seconds.
func TestInterpolationIsBounded(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("${A:-", n) + strings.Repeat("}", n) }
	flat := func(n int) string { return strings.Repeat("${A:-x}", n) }
	unset := func(string) (string, bool) { return "", false }
	for name, text := range map[string]func(int) string{
		"nested": nested, "flat": flat,
		"plain":   func(n int) string { return strings.Repeat("${A}", n) },
		"escaped": func(n int) string { return strings.Repeat("$${A:-x}", n) },
		"mixed":   func(n int) string { return strings.Repeat(nested(8), n/8+1) },
		"long":    func(n int) string { return nested(16) + strings.Repeat("x", n*1000) },
	} {
		t.Run(name, func(t *testing.T) {
			most := ""
			for n := 8; new(Interpolation).Add(text(n)) == nil; n += n/4 + 1 {
				most = text(n)
			}
			start := time.Now()
			_, err := template.Substitute(most, unset)
			require.NoError(t, err)
			t.Logf("%d characters: %s", len(most), time.Since(start).Round(time.Millisecond))
			require.Less(t, time.Since(start), 60*time.Second)
		})
	}

	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	check := func() error {
		if _, err := Variables(dir); err != nil {
			return err
		}
		files, err := FindFiles(dir)
		require.NoError(t, err)
		return CheckFiles(dir, files, nil, Settings{}, unset)
	}
	bad := nested(3200)
	for _, c := range []struct{ compose, env string }{
		{"include: ['" + bad + "']\nservices: {web: {image: web}}\n", ""},
		{"services: {web: {image: web, command: ['" + bad + "']}}\n", ""},
		{"services: {web: {image: web}}\n", "A=" + bad + "\n"},
		{"x-a: &a '" + nested(600) + "'\nx-b: [" + strings.Repeat("*a,", 40) + "*a]\nservices: {web: {image: web}}\n", ""},
	} {
		write("compose.yaml", c.compose)
		write(".env", c.env)
		start := time.Now()
		err := check()
		require.ErrorContains(t, err, "take too long to fill in: a text of ")
		require.Less(t, time.Since(start), 5*time.Second)
	}
	write("compose.yaml", fmt.Sprintf("services: {web: {image: '%s', command: ['%s']}}\n", nested(4), flat(200)))
	write(".env", flat(100))
	require.NoError(t, CheckFiles(dir, []string{filepath.Join(dir, "compose.yaml")}, nil, Settings{}, unset))
}
