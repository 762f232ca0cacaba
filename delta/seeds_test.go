package delta_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
)

// The living seeds of FuzzApply are whole bodies: a fuzzer that begins with ones
// that fail at once finds nothing behind them. They are renewed with the golden
// deltas.
func TestGoldenSeeds(t *testing.T) {
	old, new := fuzzPair()
	for name, options := range map[string]encoder.Options{"whole": {}, "files-only": {FilesOnly: true}} {
		t.Run(name, func(t *testing.T) {
			var d bytes.Buffer
			_, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, options)
			require.NoError(t, err)
			h, err := delta.ReadHeader(bufio.NewReader(bytes.NewReader(d.Bytes())), anyFeature)
			require.NoError(t, err)
			head, err := delta.AppendHeader(nil, h)
			require.NoError(t, err)
			file := filepath.Join("testdata", "fuzz", "FuzzApply", name)
			if *update {
				seed := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", d.Bytes()[len(head):])
				require.NoError(t, os.WriteFile(file, []byte(seed), 0o644))
			}
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			quoted, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "go test fuzz v1\n[]byte(")
			require.True(t, ok)
			body, err := strconv.Unquote(strings.TrimSuffix(quoted, ")"))
			require.NoError(t, err)
			sinks, err := apply(append(head, body...), storeOf(t, old))
			require.NoError(t, err)
			for i, s := range sinks {
				require.True(t, s.committed)
				require.Equal(t, new.Objects[i].Digest, digest.Of(s.Bytes()))
			}
		})
	}
}

// anyFeature takes a delta whatever it needs.
func anyFeature(string) bool { return true }
