package powercut

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// killCase is a state of the Mender client in which the client and its running call
// of app are killed. In the steps, the release "new" stands for one that is not
// installed.
type killCase struct {
	state string
	steps []step
	at    int // the step that is killed
}

var killCases = []killCase{
	{"Download", []step{{"install", "new"}, {"commit", ""}}, 0},
	{"ArtifactInstall", []step{{"install", "new"}, {"commit", ""}}, 0},
	{"ArtifactCommit", []step{{"install", "new"}, {"commit", ""}}, 1},
	{"Cleanup", []step{{"install", "new"}, {"commit", ""}}, 1},
	{"ArtifactRollback", []step{{"install", "new"}, {"rollback", ""}}, 1},
	{"Cleanup", []step{{"install", "new"}, {"rollback", ""}}, 1},
	{"ArtifactInstall", []step{{"install", "3"}}, 0},
	{"ArtifactRollback", []step{{"install", "3"}}, 0},
	{"ArtifactFailure", []step{{"install", "3"}}, 0},
	{"Cleanup", []step{{"install", "3"}}, 0},
}

func (c killCase) name() string {
	last := c.steps[len(c.steps)-1]
	return c.state + " of " + strings.TrimSpace(last.command+" "+last.release)
}

// TestKilledEverywhere kills the real Mender client and its call of app with
// SIGKILL, in each state, at each point that the call passes: at each durable step
// and before and after each call of the sub-module. Then it continues in each of the
// ways. By default it takes two points of each state, and with MENDER_APP_FAULTS
// (`make faults`) all of them. MENDER_APP_KILLS sets another number.
func TestKilledEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a real client on a real engine; left out of -short")
	}
	prepared(t)
	seed := number(t, "MENDER_APP_SEED", rand.Int64N(1e6))
	sample := number(t, "MENDER_APP_KILLS", 2)
	if faults() && os.Getenv("MENDER_APP_KILLS") == "" {
		sample = 0
	}
	var total kills
	t.Run("kills", func(t *testing.T) {
		for i, c := range killCases {
			t.Run(c.name(), func(t *testing.T) {
				t.Parallel()
				points := everyPoint
				if sample > 0 {
					points = somePoints(rand.New(rand.NewPCG(uint64(seed), uint64(i))), sample)
				}
				m, current := killable(t)
				done := 0
				defer func() { t.Logf("%d kills", done) }()
				for n, way := range points {
					var hit bool
					var err error
					current, hit, err = m.killedAt(c, n, way, current)
					where := fmt.Sprintf("MENDER_APP_SEED=%d: killed in %s at point %d, then %s", seed, c.name(), n, way)
					require.NoError(t, err, where)
					if !hit {
						// An ArtifactFailure after a rollback has nothing to do.
						require.True(t, n > 1 || c.state == "ArtifactFailure", "no point of %s was passed", c.name())
						return
					}
					total.add(c.name())
					done++
				}
			})
		}
	})
	t.Logf("figures: kills of client and call, Docker %s, MENDER_APP_SEED=%d: %s; violations fail the test: %t", work.engine, seed, &total, t.Failed())
}

// everyPoint yields each point with each way to continue, without an end.
func everyPoint(yield func(n int, way string) bool) {
	for n := 1; ; n++ {
		for _, way := range ways {
			if !yield(n, way) {
				return
			}
		}
	}
}

// somePoints yields count random pairs of one of the first six points and a way to
// continue.
func somePoints(rng *rand.Rand, count int64) iter.Seq2[int, string] {
	return func(yield func(n int, way string) bool) {
		for range count {
			if !yield(1+rng.IntN(6), ways[rng.IntN(len(ways))]) {
				return
			}
		}
	}
}

// killable returns a machine without a disk of its own. It runs release 1.
func killable(t *testing.T) (m *machine, current string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mender-app-kill-")
	require.NoError(t, err)
	m = &machine{dir: dir, catalogue: work.catalogue}
	t.Cleanup(func() { require.NoError(t, m.close()) })
	require.NoError(t, m.boot())
	m.records, err = installFirst(m.Device, m.catalogue)
	require.NoError(t, err)
	return m, "1"
}

// killedAt kills at the n-th point of a state and continues. hit is false if the
// state has fewer points. now is the version installed afterwards.
func (m *machine) killedAt(c killCase, n int, way, current string) (now string, hit bool, err error) {
	others := slices.DeleteFunc([]string{"1", "2", "4"}, func(v string) bool { return v == current })
	p := plan{way: way, fresh: others[1]}
	p.ends = []string{current}
	for _, s := range c.steps {
		if s.release == "new" {
			s.release = others[0]
			p.ends = append(p.ends, s.release)
		}
		p.steps = append(p.steps, s)
	}
	for at, s := range p.steps {
		if at < c.at {
			if err := m.mender(s); err != nil {
				return current, false, err
			}
			continue
		}
		if at > c.at {
			break
		}
		args := append([]string{fmt.Sprintf("MENDER_APP_FAULT=app %s/*:%d:kill-both", c.state, n), "mender", "--no-syslog"}, m.arguments(s)...)
		r, err := m.Run("env", args...)
		if err != nil {
			return current, false, err
		}
		if r.Code >= 0 && r.Code != 137 {
			// The command ran to its end: it has no such point.
			if r.Code != 0 && !s.fails() {
				return current, false, errors.New(r.Output())
			}
			return current, false, nil
		}
	}
	now, err = m.goOn(p, c.at, false, m.records)
	return now, true, err
}

// kills counts the kills of each case.
type kills struct {
	mu sync.Mutex
	by map[string]int
}

func (k *kills) add(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[string]int{}
	}
	k.by[name]++
}

func (k *kills) String() string {
	total, parts := 0, []string{}
	for name, n := range k.by {
		total += n
		parts = append(parts, fmt.Sprintf("%d in %s", n, name))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d kills (%s)", total, strings.Join(parts, ", "))
}
