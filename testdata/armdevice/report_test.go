package armdevice

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// report prints what was measured, and leaves it in build/ for `make bench-arm`.
func (s *story) report() {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s: %s, %s, %s MiB\n\n", s.machine.Platform, s.machine.qemu[0], s.machine.qemu[2], Memory)
	b.WriteString("| step | with | artifact KiB | s | processor s | `app` KiB | `docker-compose` KiB | device MiB, more than before | disk MiB written |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range s.rows {
		for _, kind := range []struct {
			name string
			m    measured
		}{{"delta", r.delta}, {"full", r.full}} {
			if kind.m.Peaks == nil {
				continue
			}
			wire := "–"
			if kind.m.wire > 0 {
				wire = fmt.Sprint((kind.m.wire + 1023) / 1024)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %.0f | %.0f | %d | %d | %d, %d | %.1f |\n", r.step, kind.name, wire, kind.m.Seconds, kind.m.Processor,
				kind.m.Peaks[updateModule], kind.m.Peaks[subModule],
				kind.m.Used>>10, (kind.m.Used-kind.m.Before)>>10, float64(kind.m.Written)/(1<<20))
		}
	}
	fmt.Println(b.String())
	if !testing.Short() {
		require.NoError(s, os.WriteFile(filepath.Join(bed.Repository(), "build", "arm-"+s.machine.Name+".md"), []byte(b.String()), 0o644))
	}
}
