package delta

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FORMAT.md and the constants say the same.
func TestFormatDocument(t *testing.T) {
	b, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	doc := string(b)
	for f := range known {
		require.Contains(t, doc, "| `"+f+"` |")
	}
	require.Contains(t, doc, strings.TrimSpace(fmt.Sprintf("% x", magic)))
	require.Contains(t, doc, fmt.Sprintf("The delta format, version %d", version))
	require.Contains(t, doc, fmt.Sprintf("at most %d;", maxCovers))
	require.Contains(t, doc, fmt.Sprint(int64(checkPrime)))
	require.Contains(t, doc, fmt.Sprintf("after every %d,", checkGroup))
	require.Equal(t, 32<<20, window)
	require.Equal(t, 1<<20, bulkWin)
	require.Equal(t, 256<<10, maxMeta)
}
