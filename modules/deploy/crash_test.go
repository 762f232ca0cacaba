package deploy

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// holds asserts promise 1: what runs is what the client takes for installed, or
// what it waits for to be committed, whole; nothing else is left.
func (c *client) holds(t tb, app string) {
	t.Helper()
	if c.open != nil && c.open.release.app == app {
		c.g.is(t, app, &c.open.release)
		return
	}
	if c.unsure[app] {
		return
	}
	c.runs(t, app)
	c.g.clean(t, app)
}

// runs asserts that what the client takes for installed is what runs.
func (c *client) runs(t tb, app string) {
	t.Helper()
	c.g.is(t, app, c.provides[app])
}

// is asserts that a release runs; that one which was left for a person is there, as it
// failed, and that one which is not to be started is there and nothing runs.
func (g *rig) is(t tb, app string, want *release) {
	t.Helper()
	switch {
	case want != nil && want.stays() && g.failed(app):
		g.stays(t, app, want)
	case want != nil && want.idle():
		g.idle(t, app, want)
	default:
		g.runs(t, app, want)
	}
}

// resume is mender-app resume in a scenario. A release that waits for its commit runs
// afterwards, whatever the machine started. If it cannot be started any more, resume says so
// and leaves it to the client.
func (g *rig) resume(t tbAt, s scenario) {
	found, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	for _, r := range found {
		if r.Err != nil && r.Waiting && s.what.worn {
			require.ErrorIs(t, r.Err, submodules.ErrUnhealthy)
			return
		}
		require.NoError(t, r.Err)
	}
	a := g.app(t, "shop")
	if a == nil || phaseOf(a) != journal.Installed || !g.engine().starts(a, a.Deployment.To) {
		return
	}
	run, up := g.w.running["shop"]
	require.True(t, up && !run.stopped && !run.mixed, "the release that waits for its commit does not run: %+v", run)
}

// scenario is what a person does with a client; each command's error is
// returned, a kill ends it.
type scenario struct {
	name  string
	first *release // installed and committed before
	run   func(c *client, tr *tree) error
	what  release
	// daemon: the client restarts the machine; it is the C++ client then.
	daemon bool
	plain  bool // the sub-module has no features
	hooks  bool // of the device and of releases
	data   bool // releases store data
	// staged are what is installed first; others are installed and committed before.
	staged, others []release
	// alike: another scenario is much the same, so one client and one way to go on will
	// do but in `make faults`.
	alike bool
	// aborts: the update is aborted, which is an error wherever it goes on.
	aborts bool
}

// rig makes the device that a scenario needs.
func (s scenario) rig(t *testing.T) *rig {
	g := newRig(t)
	if s.plain {
		g = newPlainRig(t)
	}
	if s.data {
		g = newDataRig(t)
	}
	g.staged = s.staged
	if s.hooks {
		g.hooks = newFakeHooks(g)
	}
	return g
}

var scenarios = []scenario{
	{name: "first install", run: installCommit, what: v1},
	{name: "first install fails", run: installCommit, what: v3},
	{name: "update", first: &v1, run: installCommit, what: v2},
	{name: "update fails", first: &v1, run: installCommit, what: v3},
	{name: "update rolled back", first: &v1, run: installRollback, what: v2},
	{name: "same again", first: &v1, run: installCommit, what: v1},
	{name: "reboot", first: &v1, run: installCommit, what: b1, daemon: true},
	{name: "reboot fails", first: &v1, run: installCommit, what: b2, daemon: true},
	{name: "hooks: update", first: &h1, run: installCommit, what: h2, hooks: true},
	{name: "hooks: update refused", first: &h1, run: installCommit, what: h3, hooks: true},
	{name: "hooks: not ready", first: &h1, run: installCommit, what: h4, hooks: true},
	{name: "hooks: update rolled back", first: &h1, run: installRollback, what: h2, hooks: true},
	{name: "hooks: update aborted", first: &h1, run: installAbort, what: h2, hooks: true, aborts: true},
	{name: "update aborted", first: &v1, run: installAbort, what: v2, aborts: true, alike: true},
	{name: "failed release stays", first: &v1, run: installCommit, what: s3},
	{name: "failed first release stays", run: installCommit, what: s3, alike: true},
	{name: "failed release is replaced", first: &s3, run: installCommit, what: v2, alike: true},
	{name: "update over a failed release fails", first: &s3, run: installCommit, what: v3, alike: true},
	{name: "update to a stopped release", first: &v1, run: installCommit, what: l1},
	{name: "first install of a stopped release", run: installCommit, what: l1, alike: true},
	{name: "update to a stopped release rolled back", first: &v1, run: installRollback, what: l1},
	{name: "update over a stopped release fails", first: &l1, run: installCommit, what: v3, alike: true},
	{name: "hooks: not ready, and stays", first: &h1, run: installCommit, what: h5, hooks: true},
	{name: "reboot of the first install fails", run: installCommit, what: b2, daemon: true},
}

// membersFail reports whether what is installed first does not get healthy.
func (s scenario) membersFail() bool {
	return slices.ContainsFunc(s.staged, func(r release) bool { return r.sick })
}

// prepare installs the first release.
func (s scenario) prepare(t *testing.T, c *client) {
	for _, r := range s.others {
		require.NoError(t, c.install(c.g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	switch {
	case s.first == nil:
	case s.first.stays():
		require.Error(t, c.install(c.g.newTree(t, *s.first)))
		c.broken = false
	default:
		require.NoError(t, c.install(c.g.newTree(t, *s.first)))
		require.NoError(t, c.commit())
	}
}

func installCommit(c *client, tr *tree) error {
	if err := c.install(tr); err != nil {
		return err
	}
	return c.commit()
}

func installRollback(c *client, tr *tree) error {
	if err := c.install(tr); err != nil {
		return err
	}
	return c.rollback()
}

// TestKilledAnywhere kills each call of each scenario at each point it passes,
// with and without a power cut, and goes on in each of the ways there are.
func TestKilledAnywhere(t *testing.T) {
	kills := 0
	ours, parts := shared(t)
	for _, cpp := range []bool{false, true} {
		for _, s := range slices.Concat(scenarios, plainScenarios, dataScenarios, togetherScenarios, contentScenarios) {
			if s.daemon && !cpp {
				continue
			}
			for _, cut := range []bool{true, false} {
				// A kill without a power cut is the easier half: `make faults`.
				if os.Getenv("MENDER_APP_FAULTS") == "" && !cut {
					continue
				}
				for _, then := range []string{"go on", "fresh install", "mender-app resume"} {
					if testing.Short() && then != "go on" {
						continue
					}
					if s.plain && testing.Short() && s.name != "plain: update fails" {
						continue
					}
					if (s.plain || s.hooks || s.data || s.staged != nil && !s.daemon) && cpp && os.Getenv("MENDER_APP_FAULTS") == "" {
						continue // the orders of calls are tried with other scenarios
					}
					if s.daemon && s.staged != nil && then != "go on" && os.Getenv("MENDER_APP_FAULTS") == "" {
						continue
					}
					if s.alike && (cpp || then != "go on") && os.Getenv("MENDER_APP_FAULTS") == "" {
						continue
					}
					if cpp && then == "fresh install" {
						continue // it refuses until it has resumed: that is to go on
					}
					if !ours() {
						continue
					}
					name := fmt.Sprintf("cpp=%v/%s/cut=%v/%s", cpp, s.name, cut, then)
					t.Run(name, func(t *testing.T) { kills += killEach(t, cpp, s, cut, then) })
				}
			}
		}
	}
	t.Logf("figures: the model: %d kills", kills)
	if !testing.Short() {
		require.Greater(t, kills, 1000/parts)
	}
}

// drawn chooses what a test of the model leaves to chance: MENDER_APP_SEED makes it, and
// rapid, choose the same again.
var drawn = rand.New(rand.NewPCG(rand.Uint64(), 0))

func seedTests() {
	seed, err := strconv.ParseUint(os.Getenv("MENDER_APP_SEED"), 10, 64)
	if err != nil {
		return
	}
	drawn = rand.New(rand.NewPCG(seed, 0))
	if err := flag.Set("rapid.seed", strconv.FormatUint(seed, 10)); err != nil {
		panic(err)
	}
}

// shared lets several processes share the subtests of a test. It returns what tells
// whether the next one is for this process, and how many processes there are:
// MENDER_APP_PART is 2/3 in the second of three. One process cannot run two subtests at
// a time, because what durable.Inject injects is for the whole process. -short runs one
// subtest in four, others in each run. All of them take an hour of a processor: without
// -short and MENDER_APP_PART it skips the test.
func shared(t *testing.T) (ours func() bool, parts int) {
	part := 1
	parts = 1
	if testing.Short() {
		parts = 4
		part = 1 + drawn.IntN(parts)
	}
	if text := os.Getenv("MENDER_APP_PART"); text != "" {
		_, err := fmt.Sscanf(text, "%d/%d", &part, &parts)
		require.NoError(t, err, "MENDER_APP_PART")
		require.True(t, 1 <= part && part <= parts, "MENDER_APP_PART is %s", text)
	}
	if !testing.Short() && os.Getenv("MENDER_APP_PART") == "" {
		t.Skip("takes an hour: make test-kills, or a sample with -short")
	}
	n := 0
	return func() bool {
		n++
		return n%parts == part-1
	}, parts
}

// sharedWhole shares a test as a whole: it skips the test in all processes but one. -short
// runs it.
func sharedWhole(t *testing.T) {
	t.Helper()
	if ours, _ := shared(t); !testing.Short() && !ours() {
		t.Skip("left to another process (MENDER_APP_PART)")
	}
}

// stride tells at which point a test starts and how far it then goes from point
// to point. -short tries one in 50, others in each run; else all are tried.
func stride() (first, step int) {
	if testing.Short() {
		return 1 + drawn.IntN(50), 50
	}
	return 1, 1
}

func killEach(t *testing.T, cpp bool, s scenario, cut bool, then string) (kills int) {
	for call := 1; ; call++ {
		first, step := stride()
		for point := first; ; point += step {
			calls, hit := runKilled(t, cpp, s, cut, then, call, point)
			if calls < call {
				return kills // the scenario has no such call
			}
			if !hit {
				break // the call has no such point
			}
			kills++
		}
	}
}

func runKilled(t *testing.T, cpp bool, s scenario, cut bool, then string, call, point int) (calls int, hit bool) {
	g := s.rig(t)
	defer g.remove()
	c := newClient(g, cpp)
	c.daemon = s.daemon
	s.prepare(t, c)
	c.cut = func() bool { return cut }
	c.loses = cut && (call+point)%2 == 0
	var at modules.State
	c.kill = func(state modules.State) int {
		if calls++; calls == call {
			at = state
			return point
		}
		return 0
	}
	tr := g.newTree(t, s.what)
	err := s.run(c, tr)
	c.kill = nil
	if !errors.Is(err, errKilled) {
		return calls, false
	}
	where := fmt.Sprintf("killed in call %d (%s) at point %d", call, at, point)
	if c.loses && then != "mender-app resume" { // at boot, mender-app-resume.service runs it
		g.resume(tbAt{t, where}, s)
	}
	switch then {
	case "mender-app resume":
		g.resume(tbAt{t, where}, s)
		c.operatorResumed()
	case "fresh install":
		require.NoError(t, c.install(g.newTree(t, v4)), where)
		c.holds(tbAt{t, where}, "shop")
		g.whole(tbAt{t, where}, s)
		require.NoError(t, c.commit(), where)
		c.holds(tbAt{t, where}, "shop")
		g.whole(tbAt{t, where}, s)
		return calls, true
	}
	// A tree is made anew by each installation.
	if c.open == nil {
		tr = g.newTree(t, s.what)
	}
	err = c.goOn(tr)
	if !s.what.sick && !s.what.worn && !s.what.refused() && s.what.name != k4.name && s.what.name != k6.name && !s.aborts && !s.membersFail() || c.open != nil {
		require.NoError(t, err, where)
	}
	require.False(t, c.broken && !g.failed("shop") && !(c.settled && s.what.stays()), where)
	c.holds(tbAt{t, where}, "shop")
	g.whole(tbAt{t, where}, s)
	// Whatever happened, the device takes the next update.
	if c.open != nil {
		require.NoError(t, c.commit(), where)
		c.holds(tbAt{t, where}, "shop")
	}
	require.NoError(t, c.install(g.newTree(t, v4)), where)
	require.NoError(t, c.commit(), where)
	c.holds(tbAt{t, where}, "shop")
	g.whole(tbAt{t, where}, s)
	return calls, true
}

// tbAt says where a failed assertion was made.
type tbAt struct {
	*testing.T
	where string
}

func (t tbAt) FailNow() {
	t.Helper()
	t.T.Log(t.where)
	t.T.FailNow()
}

// TestStepFailsAnywhere makes each step of each call fail once, for lack of
// space: what the client then does by itself ends in the old release or the
// new one, and nothing is left over.
func TestStepFailsAnywhere(t *testing.T) {
	ours, _ := shared(t)
	for _, cpp := range []bool{false, true} {
		for _, s := range slices.Concat(scenarios, plainScenarios, dataScenarios, togetherScenarios, contentScenarios) {
			if s.daemon && !cpp || s.plain && cpp && testing.Short() || s.staged != nil && !s.daemon && cpp || !ours() {
				continue
			}
			t.Run(fmt.Sprintf("cpp=%v/%s", cpp, s.name), func(t *testing.T) {
				for n, step := stride(); failAt(t, cpp, s, n); n += step {
				}
			})
		}
	}
}

// failAt fails the n-th step of a scenario; false means that there are fewer.
func failAt(t *testing.T, cpp bool, s scenario, n int) bool {
	g := s.rig(t)
	defer g.remove()
	c := newClient(g, cpp)
	c.daemon = s.daemon
	s.prepare(t, c)
	count, at := 0, ""
	restore := durable.Inject(func(name string) error {
		if count++; count == n {
			at = name
			return unix.ENOSPC
		}
		return nil
	})
	err := s.run(c, g.newTree(t, s.what))
	restore()
	if at == "" {
		return false
	}
	where := tbAt{t, fmt.Sprintf("step %d (%s) failed: %v", n, at, err)}
	if err != nil && c.open != nil {
		t.Fatal("the client waits after a failure", where.where)
	}
	// Where the rollback itself failed, the client calls the device broken; the
	// call after it has repaired it. What could not be deleted or cleaned up
	// goes with the next installation.
	if c.open != nil {
		g.is(where, "shop", &c.open.release)
	} else {
		c.runs(where, "shop")
	}
	require.NoError(where, c.install(g.newTree(t, v4)))
	require.NoError(where, c.commit())
	c.holds(where, "shop")
	if a := g.app(t, "disk"); a == nil || a.Current != "" { // a first release that could not be removed stays until the next one
		g.whole(where, s)
	}
	return true
}

// TestAnyOrder lets people, kills, power cuts and failures do what they like
// to two applications, and asserts the invariant whenever a command has ended.
func TestAnyOrder(t *testing.T) {
	releases := []release{v1, v2, v3, v4, b1, b2, o1, s3, l1}
	rapid.Check(t, func(rt *rapid.T) {
		g := newRig(t)
		defer g.remove()
		g.keep = rapid.IntRange(0, 2).Draw(rt, "keep")
		c := newClient(g, rapid.Bool().Draw(rt, "cpp"))
		c.daemon = c.cpp && rapid.Bool().Draw(rt, "daemon")
		dying := false
		c.kill = func(modules.State) int {
			if !dying {
				return 0
			}
			return rapid.IntRange(0, 60).Draw(rt, "kill")
		}
		c.cut = func() bool { return rapid.Bool().Draw(rt, "power cut") }
		var last *tree
		var killed bool
		for range rapid.IntRange(1, 12).Draw(rt, "commands") {
			dying = rapid.Bool().Draw(rt, "dying")
			var err error
			command := rapid.SampledFrom([]string{"install", "install", "commit", "rollback", "go on", "operator"}).Draw(rt, "command")
			if killed && c.cpp && c.open != nil && command != "operator" {
				command = "go on" // it knows that it was interrupted
			}
			switch command {
			case "install":
				last = g.newTree(rt, rapid.SampledFrom(releases).Draw(rt, "release"))
				err = c.install(last)
			case "commit":
				if killed && c.undoing {
					continue // 3.4.0 has begun to roll back
				}
				err = c.commit()
			case "rollback":
				if killed && !c.undoing && c.state == modules.Cleanup {
					continue // 3.4.0 has stored the commit
				}
				err = c.rollback()
			case "go on":
				if last == nil || !killed {
					continue
				}
				if c.open == nil {
					last = g.newTree(rt, last.release)
				}
				err = c.goOn(last)
			case "operator":
				found, rerr := g.engine().Resume(t.Context(), "", "")
				require.NoError(rt, rerr)
				c.operatorResumed()
				for _, f := range found {
					require.NoError(rt, f.Err)
				}
				continue
			}
			if errors.Is(err, errKilled) {
				killed = true
				continue
			}
			killed = false
			require.False(rt, c.broken && !g.failed("shop") && !c.settled, "%v", err)
			for _, app := range []string{"shop", "other"} {
				if interrupted(g, rt, app) && !(c.open != nil && c.open.release.app == app) {
					continue // the client has forgotten it; the next download settles it
				}
				c.holds(rt, app)
			}
		}
		// The end: no more kills, and one more installation.
		dying = false
		if killed && c.open != nil {
			require.NoError(rt, c.goOn(last))
		}
		if c.open != nil {
			if err := c.rollback(); err != nil {
				require.NoError(rt, err)
			}
		}
		require.NoError(rt, c.install(g.newTree(rt, v4)))
		for _, app := range []string{"shop", "other"} {
			c.holds(rt, app)
		}
		require.NoError(rt, c.commit())
		for _, app := range []string{"shop", "other"} {
			c.holds(rt, app)
		}
	})
}

// interrupted reports whether a deployment of an application is open.
func interrupted(g *rig, t tb, app string) bool {
	a := g.app(t, app)
	return a != nil && a.Deployment != nil
}
