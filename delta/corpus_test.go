package delta_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
)

type nullSink struct{}

func (nullSink) Write(b []byte) (int, error) { return len(b), nil }
func (nullSink) Commit() error               { return nil }
func (nullSink) Abort(error)                 {}

// TestCorpus rebuilds the corpus pairs and holds the sizes to their targets.
func TestCorpus(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	targets := map[string]int64{"p03": 24, "p06": 126, "p07": 175} // KiB
	for _, dir := range corpus(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			old, err := dirImage(dir, "v1")
			require.NoError(t, err)
			new, err := dirImage(dir, "v2")
			require.NoError(t, err)
			var d bytes.Buffer
			rep, err := encoder.Encode(context.Background(), &d, []delta.Image{old}, new, encoder.Options{})
			require.NoError(t, err)
			sum := map[string]int64{}
			for _, o := range rep.Objects {
				for k, v := range o.Bytes {
					sum[k] += v
				}
				t.Log(o.Encoding, o.Total(), o.Files)
			}
			t.Logf("%.1f KiB: %v", float64(d.Len())/1024, sum)
			if k, ok := targets[filepath.Base(dir)[:3]]; ok {
				require.LessOrEqual(t, int64(d.Len()), k<<10)
			}
			name := filepath.Join(t.TempDir(), "delta")
			require.NoError(t, os.WriteFile(name, d.Bytes(), 0o644))
			require.NoError(t, benchDecode(dir, name))
		})
	}
}

// BenchmarkDecode applies the deltas of the corpus pairs.
func BenchmarkDecode(b *testing.B) {
	for _, dir := range corpus(b) {
		name := filepath.Join(b.TempDir(), "delta")
		require.NoError(b, benchEncode(encoder.Options{})(dir, name))
		b.Run(filepath.Base(dir), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, benchDecode(dir, name))
			}
		})
	}
}
