package deploy

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/journal"
)

// TestPhasesAreDocumented: the phases are part of the store's format.
func TestPhasesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../store/FORMAT.md")
	require.NoError(t, err)
	section := regexp.MustCompile(`(?s)### Phases.*?\n## `).FindString(string(text))
	var documented []journal.Phase
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, journal.Phase(m[1]))
	}
	require.ElementsMatch(t, phases, documented)
}
