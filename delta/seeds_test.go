package delta

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The living seeds of FuzzApply are whole bodies: a fuzzer that begins with ones
// that fail at once finds nothing behind them. They are renewed with the golden
// deltas.
func TestGoldenSeeds(t *testing.T) {
	old, new := fuzzPair()
	for name, options := range map[string]Options{"whole": {}, "files-only": {FilesOnly: true}} {
		t.Run(name, func(t *testing.T) {
			var d bytes.Buffer
			_, err := Encode(t.Context(), &d, []Image{old}, new, options)
			require.NoError(t, err)
			h, err := readHeader(bufio.NewReader(bytes.NewReader(d.Bytes())))
			require.NoError(t, err)
			head, err := appendHeader(nil, h)
			require.NoError(t, err)
			file := filepath.Join("testdata", "fuzz", "FuzzApply", name)
			if flag.Lookup("update").Value.String() == "true" {
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
				require.Equal(t, new.Objects[i].Digest, DigestOf(s.Bytes()))
			}
		})
	}
}
