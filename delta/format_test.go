package delta_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/codec"
	"github.com/mender-app/mender-app/delta/internal/lz"
	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// FORMAT.md and the constants say the same.
func TestFormatDocument(t *testing.T) {
	b, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	doc := string(b)
	for _, f := range []string{delta.FeatureELF, delta.FeatureLZ, delta.FeatureDeflate, delta.FeatureGo} {
		require.Contains(t, doc, "| `"+f+"` |")
	}
	require.Contains(t, doc, strings.TrimSpace(fmt.Sprintf("% x", delta.Magic)))
	require.Contains(t, doc, fmt.Sprintf("The delta format, version %d", delta.Version))
	require.Contains(t, doc, fmt.Sprintf("at most %d;", codec.MaxMatches))
	require.Contains(t, doc, fmt.Sprint(int64(codec.CheckPrime)))
	require.Contains(t, doc, fmt.Sprintf("after every %d files", codec.CheckGroup))
	require.Contains(t, doc, fmt.Sprintf("at most %d MiB + %d · (objects + old content) bytes", codec.ReadBase>>20, codec.ReadShare))
	require.Contains(t, doc, fmt.Sprintf("windows of %d MiB", codec.Window>>20))
	require.Contains(t, doc, fmt.Sprintf("or of %d MiB if addresses are predicted", codec.ELFWindow>>20))
	require.Contains(t, doc, fmt.Sprintf("with a window of %d MiB", lz.Window>>20))
	require.Contains(t, doc, fmt.Sprintf("multiple of %d in the window", lz.Alignment))
	require.Contains(t, doc, fmt.Sprintf("A match has %d to %d bytes", lz.MinMatch, lz.MaxMatch))
	require.Contains(t, doc, fmt.Sprintf("their number (at most %d)", codec.MaxParts))
	require.Contains(t, doc, fmt.Sprintf("header blocks reach %d KiB", codec.MaxBatch>>10))
	require.Contains(t, doc, fmt.Sprintf("at most %d KiB; a tar with more", tarheader.MaxBlocks>>10))
}
