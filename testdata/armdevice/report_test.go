package armdevice

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// BenchEnv, if set, makes the test write the figures into docs/BENCHMARKS.md.
const BenchEnv = "MENDER_APP_BENCH"

// The kinds of artifacts.
const (
	full  = "whole"
	delta = "deep delta"
)

// measured holds the cost of a step.
type measured struct {
	Result
	Wire int64 // bytes of the artifact; 0 if there is none
}

// figure is a measured step, with the kind of artifact that it used.
type figure struct {
	Step, With string
	Cost       measured
}

// keep stores the cost of a step, so that a later run that starts after the step has
// it too.
func (s *story) keep(step, with string, m measured) {
	s.Helper()
	kept := s.figures[:0]
	for _, f := range s.figures {
		if f.Step != step || f.With != with {
			kept = append(kept, f)
		}
	}
	m.Output = ""
	s.figures = append(kept, figure{step, with, m})
	data, err := json.Marshal(s.figures)
	require.NoError(s, err)
	require.NoError(s, os.WriteFile(s.figuresFile(), data, 0o644))
}

// cost is what keep kept.
func (s *story) cost(step, with string) measured {
	s.Helper()
	for _, f := range s.figures {
		if f.Step == step && f.With == with {
			return f.Cost
		}
	}
	require.Fail(s, "no measurement", "%s, %s", step, with)
	return measured{}
}

func (s *story) figuresFile() string { return filepath.Join(s.dir, "figures.json") }

// remember reads the measurements of earlier runs.
func (s *story) remember() {
	data, err := os.ReadFile(s.figuresFile())
	require.NoError(s, err)
	require.NoError(s, json.Unmarshal(data, &s.figures))
}

// report prints the measurements. If BenchEnv is set, it also writes them into
// docs/BENCHMARKS.md.
func (s *story) report() {
	var b strings.Builder
	fmt.Fprintf(&b, "%s with %s MiB of memory, emulated by %s (testdata/armdevice): one processor (%s). "+
		"Its clock is in 1970 after the power cuts, so also for `update to 4` as a deep delta.\n\n",
		s.machine.Platform, Memory, s.machine.qemu[0], s.machine.qemu[2])
	fmt.Fprintf(&b, "    make bench-arm ARM=%s\n\n", s.machine.Name)
	b.WriteString("| step | artifact | KiB | s | processor s | `app` MiB | `docker-compose` MiB | device MiB | written MiB |\n|---|---|---|---|---|---|---|---|---|\n")
	told := map[string]bool{}
	for _, f := range s.figures {
		if told[f.Step] {
			continue
		}
		told[f.Step] = true
		for _, g := range s.figures {
			if g.Step != f.Step {
				continue
			}
			wire := "–"
			if g.Cost.Wire > 0 {
				wire = fmt.Sprint((g.Cost.Wire + 1023) / 1024)
			}
			mib := func(kib int64) float64 { return float64(kib) / 1024 }
			fmt.Fprintf(&b, "| %s | %s | %s | %.0f | %.0f | %.1f | %.1f | %.0f (+%.0f) | %.1f |\n", g.Step, g.With, wire, g.Cost.Seconds, g.Cost.Processor,
				mib(g.Cost.Peaks[updateModule]), mib(g.Cost.Peaks[subModule]),
				mib(g.Cost.Used), mib(g.Cost.Used-g.Cost.Before), float64(g.Cost.Written)/(1<<20))
		}
	}
	fmt.Println(b.String())
	if os.Getenv(BenchEnv) == "" {
		return
	}
	file := filepath.Join(bed.Repository(), "docs/BENCHMARKS.md")
	text, err := os.ReadFile(file)
	require.NoError(s, err)
	require.NoError(s, os.WriteFile(file, []byte(section(string(text), "On an emulated ARM device: "+s.machine.Name, b.String())), 0o644))
}

// section replaces the section with the same title in a document, or appends it.
func section(document, title, text string) string {
	title = "## " + title + "\n"
	before, after, found := strings.Cut(document, title)
	next := ""
	if at := strings.Index(after, "\n## "); found && at >= 0 {
		next = after[at:]
	}
	return strings.TrimRight(before, "\n") + "\n\n" + title + "\n" + strings.TrimRight(text, "\n") + "\n" + next
}

func TestSection(t *testing.T) {
	one := section("# Title\n\n## Other\n\nx\n", "A", "old\n\n")
	require.Equal(t, "# Title\n\n## Other\n\nx\n\n## A\n\nold\n", one)
	two := section(one, "B", "b")
	require.Equal(t, "# Title\n\n## Other\n\nx\n\n## A\n\nnew\n\n## B\n\nb\n", section(two, "A", "new"))
	require.Equal(t, one+"\n## B\n\nc\n", section(two, "B", "c"))
}
