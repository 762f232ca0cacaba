package delta_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/delta/encoder"
)

// The estimate is compared with the instructions that a decoder on arm/v7 executes, and
// with its processor time here, for deltas of three thrifts: a Markdown table.
// testdata/count says what counts instructions.
//
//	MENDER_APP_BENCH=1 MENDER_APP_BENCH_ARM=delta-arm.test MENDER_APP_BENCH_COUNT='qemu-arm -plugin count.so' go test -run TestEstimate -v ./delta
func TestEstimate(t *testing.T) {
	count := strings.Fields(os.Getenv("MENDER_APP_BENCH_COUNT"))
	if os.Getenv("MENDER_APP_BENCH") == "" || len(count) == 0 {
		t.Skip("MENDER_APP_BENCH and MENDER_APP_BENCH_COUNT are not set")
	}
	arm := os.Getenv("MENDER_APP_BENCH_ARM")
	require.NotEmpty(t, arm, "the test program for arm/v7")
	self, err := os.Executable()
	require.NoError(t, err)
	class := budget.Classes[0]
	fmt.Printf("| pair | thrift | KiB | Minstructions estimated | counted | estimated by counted | s here | s on %s, estimated |\n|---|---|---|---|---|---|---|---|\n", class.Name)
	for _, dir := range corpus(t) {
		old, err := dirImage(dir, "v1")
		require.NoError(t, err)
		new, err := dirImage(dir, "v2")
		require.NoError(t, err)
		for _, thrift := range []int{0, encoder.MaxThrift / 2, encoder.MaxThrift} {
			d := filepath.Join(t.TempDir(), "delta")
			w, err := os.Create(d)
			require.NoError(t, err)
			rep, err := encoder.Encode(t.Context(), w, []delta.Image{old}, new, encoder.Options{Thrift: thrift})
			require.NoError(t, err)
			require.NoError(t, w.Close())

			dec := exec.Command(count[0], append(count[1:], arm, dir, d)...)
			dec.Env = append(os.Environ(), benchRole+"=decode", "GOMAXPROCS=1")
			var out bytes.Buffer
			dec.Stderr = &out
			require.NoError(t, dec.Run(), "%s", &out)
			var counted int64
			_, err = fmt.Sscanf(out.String(), "instructions: %d", &counted)
			require.NoError(t, err, "%s", &out)
			here := math.Inf(1)
			for range 3 {
				here = min(here, measure(t, benchRole+"=decode", self, dir, d).cpu)
			}
			n := rep.Work.Instructions()
			fmt.Printf("| %s | %d | %.1f | %d | %d | %.2f | %.2f | %.1f |\n", filepath.Base(dir), thrift, float64(rep.Size)/1024,
				n/1e6, counted/1e6, float64(n)/float64(counted), here, class.Time(n).Seconds())
		}
	}
}
