package powercut

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// step is one command of the client.
type step struct {
	command string // install, commit or rollback
	release string // to install, a key of the catalogue
}

func (s step) fails() bool { return s.release == "3" }

// scenario is what a device does when the power is cut.
type scenario struct {
	name  string
	old   string // the version that is installed, "" for none
	steps []step
	from  int // the first step that the power may go in
	ends  []string
	// The approximate number of writes and flushes of the scenario from step from
	// on. A cut beyond the scenario's end happens right after it.
	writes, flushes int64
}

var scenarios = []scenario{
	{"first install", "", []step{{"install", "1"}, {"commit", ""}}, 0, []string{"", "1"}, 400, 120},
	{"update", "1", []step{{"install", "2"}, {"commit", ""}}, 0, []string{"1", "2"}, 400, 120},
	{"delta update", "1", []step{{"install", "2 delta"}, {"commit", ""}}, 0, []string{"1", "2"}, 400, 120},
	{"failing update", "1", []step{{"install", "3"}}, 0, []string{"1"}, 400, 120},
	{"update taken back", "1", []step{{"install", "2"}, {"rollback", ""}}, 0, []string{"1", "2"}, 400, 120},
	{"commit", "1", []step{{"install", "2"}, {"commit", ""}}, 1, []string{"1", "2"}, 100, 30},
}

// ways are the ways to continue after the power is back.
var ways = []string{"the client's next call", "a fresh installation", "mender-app resume"}

// plan describes one cut. All of it is drawn from the seed.
type plan struct {
	scenario
	way   string
	mode  string
	kind  string // write, flush, success, moment, point
	n     int64  // the n-th write or flush; the success of step n; ms after the beginning
	point point
	seed  int64
	fresh string // the release that is installed next
}

// point is a step of the product (store/durable) at which the command waits for the
// power cut. A cut at a random write would seldom hit the time right after a load,
// when nothing is synced yet.
type point struct {
	name string // a call of app and the step in it
	nth  int    // time that the call passes it
	all  int    // how often it is passed by then in the whole command
}

var points = map[string][]point{
	"install": {
		{"app Download/call.LOAD", 1, 1}, {"app Download/called.LOAD", 1, 1}, {"app Download/called.LOAD", 2, 2},
		{"app Download/called.LOAD", 1, 1}, {"app Download/called.LOAD", 2, 2},
		{"app Download/unpacked.manifests", 1, 1}, {"app Download/called.SYNC", 1, 1},
		{"app ArtifactInstall/enter.installing", 1, 1}, {"app ArtifactInstall/call.ROLLOUT", 1, 1},
		{"app ArtifactInstall/called.ROLLOUT", 1, 1}, {"app ArtifactInstall/called.SYNC", 1, 2},
		{"app ArtifactInstall/enter.installed", 1, 1},
	},
	"commit": {{"app ArtifactCommit/enter.committed", 1, 1}, {"app Cleanup/enter.cleaning", 1, 1}},
	"rollback": {
		{"app ArtifactRollback/enter.rolling-back", 1, 1}, {"app ArtifactRollback/call.ROLLBACK", 1, 1},
		{"app ArtifactRollback/called.ROLLBACK", 1, 1}, {"app ArtifactRollback/called.SYNC", 1, 1},
		{"app Cleanup/call.DELETE", 1, 1}, {"app Cleanup/called.DELETE", 1, 1},
	},
}

var kinds = []string{"write", "write", "flush", "flush", "success", "moment", "point", "point"}

// drawn returns cut number k of a seed. Scenarios and ways take turns, so that even
// a few cuts cover each of them.
func drawn(seed int64, k int) plan {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(k)))
	p := plan{
		scenario: scenarios[k%len(scenarios)], way: ways[(k/len(scenarios)+k)%len(ways)],
		seed: rng.Int64N(1 << 30), fresh: "4",
	}
	p.mode = []string{"none", "random", "prefix", "all"}[rng.IntN(4)]
	p.kind = kinds[rng.IntN(len(kinds))]
	switch p.kind {
	case "write":
		p.n = 1 + rng.Int64N(p.writes)
	case "flush":
		p.n = 1 + rng.Int64N(p.flushes)
	case "success":
		p.n = int64(p.from) + rng.Int64N(int64(len(p.steps)-p.from))
	case "moment":
		p.n = 100 + rng.Int64N(4000)
	case "point":
		p.n = int64(p.from) + rng.Int64N(int64(len(p.steps)-p.from))
		of := points[p.steps[p.n].command]
		p.point = of[rng.IntN(len(of))]
	}
	return p
}

func (p plan) String() string {
	at := fmt.Sprint(p.kind, " ", p.n)
	if p.kind == "point" {
		at = fmt.Sprintf("%s:%d", p.point.name, p.point.nth)
	}
	return fmt.Sprintf("%s, cut at %s, keeping %s (%d), then %s", p.name, at, p.mode, p.seed, p.way)
}

// TestPowerCuts cuts the power of a device during an operation, and right after the
// operation reported success. MENDER_APP_CUTS is the number of cuts, MENDER_APP_SEED
// is the seed, and MENDER_APP_CUT is the number of the only cut to make.
func TestPowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts real disks; left out of -short")
	}
	prepared(t)
	seed := number(t, "MENDER_APP_SEED", time.Now().UnixNano()%1e6)
	cuts := number(t, "MENDER_APP_CUTS", 10)
	if faults() {
		cuts = number(t, "MENDER_APP_CUTS", 120)
	}
	only := number(t, "MENDER_APP_CUT", -1)
	t.Logf("MENDER_APP_SEED=%d", seed)
	var tally tally
	t.Run("cuts", func(t *testing.T) {
		for k := range int(cuts) {
			if only >= 0 && int(only) != k {
				continue
			}
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				p := drawn(seed, k)
				start := time.Now()
				what, err := one(p)
				t.Logf("%s: %s (%.1f s)", p, what, time.Since(start).Seconds())
				tally.add(p, what, err)
				require.NoError(t, err, "MENDER_APP_SEED=%d MENDER_APP_CUT=%d: %s", seed, k, p)
			})
		}
	})
	t.Logf("figures: power cuts, Docker %s, MENDER_APP_SEED=%d: %s", work.engine, seed, &tally)
}

// one makes a cut and returns a description of it. The error says how promise 1 was
// broken.
func one(p plan) (what string, err error) {
	image, records := work.empty, map[string]string(nil)
	if p.old != "" {
		image, records = work.installed, work.records
	}
	m, err := newMachine(image, work.catalogue)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.boot(); err != nil {
		return "", err
	}
	at, done, err := m.interrupted(p)
	if err != nil {
		return "", err
	}
	what = fmt.Sprintf("step %d", at)
	if done {
		what = fmt.Sprintf("after step %d", at)
	}
	if err := m.cut(p.mode, p.seed); err != nil {
		return what, err
	}
	stat, err := m.disk.ask("stat")
	if err != nil {
		return what, err
	}
	what += " " + stat
	if err := m.boot(); err != nil {
		return what, fmt.Errorf("the device does not start again: %w", err)
	}
	ended, err := m.goOn(p, at, done, records)
	if err == nil && ended != p.fresh {
		err = m.next(p, records)
	}
	if m.refusals > 0 {
		what += " refused once"
	}
	return what, err
}

// interrupted runs the scenario until the power is cut. It returns the step of the
// cut; done says that the step had already ended.
func (m *machine) interrupted(p plan) (at int, done bool, err error) {
	for at, s := range p.steps {
		if at == p.from && (p.kind == "write" || p.kind == "flush") {
			if _, err := m.disk.ask("arm %s %d %s %d", p.kind, p.n, p.mode, p.seed); err != nil {
				return at, false, err
			}
		}
		var after time.Duration
		if at == p.from && p.kind == "moment" {
			after = time.Duration(p.n) * time.Millisecond
		}
		var stop *point
		if p.kind == "point" && int64(at) == p.n {
			stop = &p.point
		}
		said, ok, off, err := m.until(p, s, after, stop)
		switch {
		case err != nil:
			return at, false, err
		case off:
			return at, false, nil
		case ok == s.fails():
			return at, false, fmt.Errorf("mender %s, before any cut: %s", s.command, said)
		case (p.kind == "success" || stop != nil) && int64(at) == p.n:
			return at, true, nil
		}
	}
	return len(p.steps) - 1, true, nil
}

// until runs a command of the client until it ends or until the disk loses its
// power. The disk loses its power at an armed write or flush, after a time, or when
// the command waits at stop.
func (m *machine) until(p plan, s step, after time.Duration, stop *point) (said string, succeeded, off bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := m.MenderCommand(ctx, m.arguments(s)...)
	if stop != nil {
		c.Env = append(c.Env, "MENDER_APP_FAULT_TRACE=/run/trace", fmt.Sprintf("MENDER_APP_FAULT=%s:%d:hang", stop.name, stop.nth))
	}
	var out []byte
	done := make(chan error, 1)
	go func() {
		var err error
		out, err = c.CombinedOutput()
		done <- err
	}()
	var moment <-chan time.Time
	if after > 0 {
		moment = time.After(after)
	}
	for tick := time.NewTicker(pace); ; {
		select {
		case err := <-done:
			tick.Stop()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return "", false, false, err
			}
			off, offErr := m.disk.off()
			return string(out), err == nil, off, offErr
		case <-moment:
			if _, err := m.disk.ask("cut %s %d", p.mode, p.seed); err != nil {
				return "", false, false, err
			}
		case <-tick.C:
			if stop != nil && m.passed(*stop) {
				if _, err := m.disk.ask("cut %s %d", p.mode, p.seed); err != nil {
					return "", false, false, err
				}
			}
			off, err := m.disk.off()
			if err != nil || off {
				tick.Stop()
				err = errors.Join(err, m.Device.Kill())
				<-done
				return string(out), false, true, err
			}
		}
	}
}

// passed reports whether a command has reached a point, where it waits.
func (m *machine) passed(p point) bool {
	trace, err := os.ReadFile(m.Path("/run/trace"))
	if err != nil {
		return false
	}
	_, name, _ := strings.Cut(p.name, "/")
	passed := 0
	for line := range strings.Lines(string(trace)) {
		if strings.TrimSpace(line) == name {
			passed++
		}
	}
	return passed >= p.all
}

func (m *machine) arguments(s step) []string {
	if s.command != "install" {
		return []string{s.command}
	}
	return []string{s.command, m.Share(filepath.Base(m.catalogue.releases[s.release].file))}
}

// again ends the message of a refusal that the next attempt overcomes: after a power
// cut, a load found damaged data that it needed, and the data was deleted. The old
// release keeps running.
const again = "install the artifact again"

// mender runs a command of the client. The error holds the command's output.
func (m *machine) mender(s step) error {
	r, err := m.Mender(m.arguments(s)...)
	if err == nil && r.Code > 0 && s.command == "install" && strings.Contains(r.Output(), again) {
		m.refusals++
		r, err = m.Mender(m.arguments(s)...)
	}
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return fmt.Errorf("mender %s %s: %w", s.command, s.release, err)
	}
	return nil
}

// goOn continues after a cut or a kill in one of the ways, asserts that the device
// ends in one of the allowed releases, and returns its version.
func (m *machine) goOn(p plan, at int, done bool, records map[string]string) (ended string, err error) {
	switch p.way {
	case "the client's next call":
		// Repeat the command, or run the next one, and then the rest. A commit or
		// rollback that was already stored finds nothing to do.
		for n := at; n < len(p.steps); n++ {
			s := p.steps[n]
			if n == at && done {
				continue
			}
			err := m.mender(s)
			if s.fails() {
				if err == nil {
					return "", errors.New("mender installed a release that fails")
				}
				continue
			}
			if err != nil && (n > at || done || s.command == "install") {
				return "", err
			}
		}
	case "mender-app resume":
		r, err := m.Run("mender-app", "resume")
		if err != nil || r.Code != 0 {
			return "", fmt.Errorf("mender-app resume: %w %s", err, r.Output())
		}
		s, err := settled(m.Device, m.catalogue, records)
		if err != nil {
			return "", fmt.Errorf("after mender-app resume: %w", err)
		}
		if !slices.Contains(p.ends, s.runs) {
			return "", fmt.Errorf("after mender-app resume %q runs", s.runs)
		}
		if !s.agrees() {
			// The deployment waits for the client. The client repeats the command
			// that ends a deployment it has stored, or else does nothing.
			last := p.steps[len(p.steps)-1]
			if last.command != "install" {
				_ = m.mender(last)
			}
			if s, err = settled(m.Device, m.catalogue, records); err != nil {
				return "", fmt.Errorf("after mender-app resume and mender %s: %w", last.command, err)
			}
			if s.phase != "" {
				// The client has forgotten the deployment. Its next installation
				// settles it.
				return p.fresh, m.next(p, records)
			}
		}
	case "a fresh installation":
		return p.fresh, m.next(p, records)
	}
	return becomes(m.Device, m.catalogue, records, p.ends...)
}

// next installs and commits one more release.
func (m *machine) next(p plan, records map[string]string) error {
	for _, s := range []step{{"install", p.fresh}, {"commit", ""}} {
		if err := m.mender(s); err != nil {
			return fmt.Errorf("the next installation: %w", err)
		}
	}
	if _, err := becomes(m.Device, m.catalogue, records, p.fresh); err != nil {
		return fmt.Errorf("after the next installation: %w", err)
	}
	return nil
}

// tally counts cuts.
type tally struct {
	mu         sync.Mutex
	total      int
	violations []string
	by         map[string]int
}

func (c *tally) add(p plan, what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.total++
	where := "in the middle"
	if strings.HasPrefix(what, "after") {
		where = "right after success"
	}
	keys := []string{where, "keeping " + p.mode, p.name, "then " + p.way}
	if strings.HasSuffix(what, "refused once") {
		keys = append(keys, "refused once before the next installation")
	}
	for _, key := range keys {
		c.by[key]++
	}
	if err != nil {
		c.violations = append(c.violations, p.String())
	}
}

func (c *tally) String() string {
	var parts []string
	for key, n := range c.by {
		parts = append(parts, fmt.Sprintf("%d %s", n, key))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d cuts, %d violations %s (%s)", c.total, len(c.violations), strings.Join(c.violations, "; "), strings.Join(parts, ", "))
}
