package powercut

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// step is one command of the client, or of mender-app.
type step struct {
	command string // install, commit or rollback; "mender-app …": one of that program
	release string // to install, a key of the catalogue
}

func (s step) fails() bool { return s.release == "3" }

// own reports whether the command is one of mender-app.
func (s step) own() bool { return strings.HasPrefix(s.command, "mender-app ") }

func (s step) installs() bool { return strings.HasSuffix(s.command, "install") }

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

// setsOverride is the scenario in which an operator changes the manifests.
const setsOverride = "override"

var scenarios = []scenario{
	{"first install", "", []step{{"install", "1"}, {"commit", ""}}, 0, []string{"", "1"}, 400, 120},
	{"update", "1", []step{{"install", "2"}, {"commit", ""}}, 0, []string{"1", "2"}, 400, 120},
	{"delta update", "1", []step{{"install", "2 delta"}, {"commit", ""}}, 0, []string{"1", "2"}, 400, 120},
	{"failing update", "1", []step{{"install", "3"}}, 0, []string{"1"}, 400, 120},
	{"update taken back", "1", []step{{"install", "2"}, {"rollback", ""}}, 0, []string{"1", "2"}, 400, 120},
	{"commit", "1", []step{{"install", "2"}, {"commit", ""}}, 1, []string{"1", "2"}, 100, 30},
	{"update aborted", "1", []step{{"mender-app install", "2"}, {"mender-app abort", ""}}, 0, []string{"1", "2"}, 400, 120},
	{setsOverride, "1", []step{{"mender-app overrides", ""}}, 0, []string{"1"}, 100, 30},
}

// ways are the ways to continue after the power is back.
var ways = []string{"the client's next call", "a fresh installation", "mender-app resume"}

// plan describes one cut. All of it is drawn from the seed.
type plan struct {
	scenario
	cpp   bool // under the client in C++
	way   string
	mode  string
	kind  string // write, flush, success, moment, point
	n     int64  // the n-th write or flush; the success of step n; ms after the beginning
	point point
	seed  int64
	fresh string // the release that is installed next
	// networks: the engine loses its database of networks as well, as after some power cuts.
	networks bool
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
	"install": installs, "mender-app install": installs,
	"commit":           {{"app ArtifactCommit/enter.committed", 1, 1}, {"app Cleanup/enter.cleaning", 1, 1}},
	"rollback":         append(slices.Clip(goesBack), point{"app Cleanup/call.DELETE", 1, 1}, point{"app Cleanup/called.DELETE", 1, 1}),
	"mender-app abort": goesBack,
	"mender-app overrides": {
		{"mender-app overrides/wrote.app.json", 1, 1}, {"mender-app overrides/call.START", 1, 1}, {"mender-app overrides/called.START", 1, 1},
	},
}

var (
	installs = []point{
		{"app Download/call.LOAD", 1, 1}, {"app Download/called.LOAD", 1, 1}, {"app Download/called.LOAD", 2, 2},
		{"app Download/called.LOAD", 1, 1}, {"app Download/called.LOAD", 2, 2},
		{"app Download/unpacked.manifests", 1, 1}, {"app Download/called.SYNC", 1, 1},
		{"app ArtifactInstall/enter.installing", 1, 1}, {"app ArtifactInstall/call.ROLLOUT", 1, 1},
		{"app ArtifactInstall/called.ROLLOUT", 1, 1}, {"app ArtifactInstall/called.SYNC", 1, 2},
		{"app ArtifactInstall/enter.installed", 1, 1},
	}
	goesBack = []point{
		{"app ArtifactRollback/enter.rolling-back", 1, 1}, {"app ArtifactRollback/call.ROLLBACK", 1, 1},
		{"app ArtifactRollback/called.ROLLBACK", 1, 1}, {"app ArtifactRollback/called.SYNC", 1, 1},
	}
)

var kinds = []string{"write", "write", "flush", "flush", "success", "moment", "point", "point"}

// drawn returns cut number k of a seed. Scenarios, ways and clients take turns, so that
// even a few cuts cover each of them.
func drawn(seed int64, k int) plan {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(k)))
	turn := k/len(scenarios) + k%len(scenarios)
	p := plan{
		scenario: scenarios[k%len(scenarios)], way: ways[turn%len(ways)],
		cpp:   turn%2 == 1,
		fresh: "4",
	}
	if work.ledger != "" { // the ledger writes all the time, and its data is copied
		p.writes, p.flushes = 4*p.writes, 4*p.flushes
	}
	p.draw(rng)
	return p
}

// draw draws when the power is cut, and what is left of the disk's cache.
func (p *plan) draw(rng *rand.Rand) {
	p.seed = rng.Int64N(1 << 30)
	p.networks = p.seed%4 == 0
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
		if work.ledger != "" {
			p.n *= 2
		}
	case "point":
		p.n = int64(p.from) + rng.Int64N(int64(len(p.steps)-p.from))
		of := points[p.steps[p.n].command]
		p.point = of[rng.IntN(len(of))]
	}
}

func (p plan) client() string {
	if p.cpp {
		return "the client in C++"
	}
	return "the client in Go"
}

func (p plan) String() string {
	at := fmt.Sprint(p.kind, " ", p.n)
	if p.kind == "point" {
		at = fmt.Sprintf("%s:%d", p.point.name, p.point.nth)
	}
	return fmt.Sprintf("%s under %s, cut at %s, keeping %s (%d), then %s", p.name, p.client(), at, p.mode, p.seed, p.way)
}
