package powercut

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

const (
	// member is an application that release 2 of app needs in version 2: its artifact is
	// staged, and is installed with that of app.
	member = "shed"
	// leads is the key of the release that needs it.
	leads = "2 leads"
)

// together is the scenario in which both are updated.
var together = scenario{"update of two", "1", []step{{"install", leads}, {"commit", ""}}, 0, nil, 600, 160}

// TestPowerCutsTogether cuts the power while two applications are installed together: both
// run their old release or both their new one. MENDER_APP_CUTS, MENDER_APP_SEED and
// MENDER_APP_CUT are as for TestPowerCuts.
func TestPowerCutsTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts real disks; left out of -short")
	}
	prepared(t)
	if work.ledger != "" {
		t.Skip("is the same with the database")
	}
	image, c, err := withMember()
	require.NoError(t, err)
	seed := number(t, "MENDER_APP_SEED", time.Now().UnixNano()%1e6)
	cuts := number(t, "MENDER_APP_CUTS", 4)
	if faults() {
		cuts = number(t, "MENDER_APP_CUTS", 40)
	}
	only := number(t, "MENDER_APP_CUT", -1)
	noCpp := bed.HasCppMender()
	var tally tally
	t.Run("cuts", func(t *testing.T) {
		for k := range int(cuts) {
			if only >= 0 && int(only) != k {
				continue
			}
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				p := plan{scenario: together, way: ways[k/2%len(ways)], cpp: k%2 == 1 && noCpp == nil, fresh: "4"}
				p.draw(rand.New(rand.NewPCG(uint64(seed), uint64(k))))
				what, err := oneTogether(p, image, c)
				t.Logf("%s: %s", p, what)
				tally.add(p, what, err)
				require.NoError(t, err, "MENDER_APP_SEED=%d MENDER_APP_CUT=%d: %s", seed, k, p)
			})
		}
	})
	t.Logf("figures: power cuts in an update of two applications, Docker %s, MENDER_APP_SEED=%d: %s", work.engine, seed, &tally)
}

// withMember returns the disk of a device on which both applications run release 1, and
// the catalogue with what the scenario needs.
func withMember() (image string, c *catalogue, err error) {
	dir := filepath.Join(work.dir, "together")
	more := *work.catalogue
	c, more.releases = &more, maps.Clone(more.releases)
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return "", nil, err
	}
	for _, v := range []string{"1", "2"} {
		r := &release{version: v, file: filepath.Join(dir, member+"-"+v+".mender")}
		compose := fmt.Sprintf("services:\n  box:\n    image: %s\n    restart: unless-stopped\n    environment: [VERSION=%s]\n", stockTag, v)
		if err := errors.Join(os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(compose), 0o644),
			os.WriteFile(filepath.Join(manifests, "app.toml"), []byte("version = '"+v+".0'\n"), 0o644)); err != nil {
			return "", nil, err
		}
		if err := generate(member, v, manifests, r.file, "--image", c.archives[stockTag], "--deep-delta=false"); err != nil {
			return "", nil, err
		}
		c.releases[member+" "+v] = r
	}
	policy := filepath.Join(dir, "app.toml")
	if err := os.WriteFile(policy, []byte("version = '2.0'\ndepends = [{name = '"+member+"', version = '2\\.0', action = 'apply'}]\n"), 0o644); err != nil {
		return "", nil, err
	}
	leader := *c.releases["2"]
	leader.file = filepath.Join(dir, app+"-2-leads.mender")
	if err := c.generate(dir, &leader, c.archives["2"], c.archives[stockTag], "--deep-delta=false", "--policy", policy); err != nil {
		return "", nil, err
	}
	c.releases[leads] = &leader

	image = filepath.Join(dir, "installed.img")
	if err := copyImage(work.installed, image); err != nil {
		return "", nil, err
	}
	m := &machine{dir: filepath.Join(dir, "first"), backing: image, catalogue: c}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := errors.Join(os.Mkdir(m.dir, 0o755), m.boot()); err != nil {
		return "", nil, err
	}
	for _, args := range [][]string{{"mender", "install", m.Share(member + "-1.mender")}, {"mender", "commit"}, {"mender-app", "stage", "--unsigned", m.Share(member + "-2.mender")}} {
		if r, err := m.Run(args[0], args[1:]...); err != nil || r.Code != 0 {
			return "", nil, fmt.Errorf("%s: %w %s", strings.Join(args, " "), err, r.Output())
		}
	}
	if err := m.run("1", "1"); err != nil {
		return "", nil, err
	}
	return image, c, m.shutDown()
}

// oneTogether makes a cut and returns a description of it.
func oneTogether(p plan, image string, c *catalogue) (what string, err error) {
	m, err := newMachine(image, c)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	m.cpp = p.cpp
	if err := m.boot(); err != nil {
		return "", err
	}
	at, done, err := m.interrupted(p)
	if err != nil {
		return "", err
	}
	what = fmt.Sprintf("step %d", at)
	committed := done && at == len(p.steps)-1
	if done {
		what = fmt.Sprintf("after step %d", at)
		if err := m.run("2", "2"); err != nil {
			return what, err
		}
	}
	if err := errors.Join(m.cut(p.mode, p.seed), m.boot()); err != nil {
		return what, err
	}
	ended, err := m.goOnTogether(p, committed)
	return what + ", then " + ended, err
}

// goOnTogether goes on in one of the ways and says which releases run then.
func (m *machine) goOnTogether(p plan, committed bool) (ended string, err error) {
	switch {
	case p.way == "mender-app resume":
		if r, err := m.product("resume"); err != nil || r.Code != 0 {
			return "", fmt.Errorf("mender-app resume: %w %s", err, r.Output())
		}
	case p.way == "the client's next call" && m.cpp:
		if _, err := m.client("resume"); err != nil {
			return "", err
		}
	}
	// The client commits what waits for that. A client that has forgotten the deployment
	// refuses, and the next installation takes both back.
	if p.way != "a fresh installation" {
		if _, err := m.client("commit"); err != nil {
			return "", err
		}
	}
	var s standing
	if err := s.readJournal(m.Device); err != nil {
		return "", err
	}
	if s.phase == "" {
		if err := m.run("2", "2"); err == nil {
			return "both are new", nil
		} else if committed {
			return "", err
		}
		return "both are old", m.run("1", "1")
	}
	if committed {
		return "", fmt.Errorf("the deployment is %s after the commit", s.phase)
	}
	state, err := m.State("/")
	if err != nil {
		return "", err
	}
	// A client in whose database the cut has undone the commit believes in the old release.
	believes := state.Provides["artifact_name"] == app+"-2"
	for _, s := range []step{{"install", p.fresh}, {"commit", ""}} {
		if err := m.mender(s); err != nil {
			return "", err
		}
	}
	if s.phase == "committed" && believes || s.phase == "cleaning" || m.committed {
		return "both are new", m.run(p.fresh, "2")
	}
	return "both are old", m.run(p.fresh, "1")
}

// run asserts that these versions of the applications run, and that every image of the
// engine is whole.
func (m *machine) run(leader, follower string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	configs, err := m.ReadImages(ctx)
	if err != nil {
		return err
	}
	var wrong error
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		state, err := m.State("/")
		if err != nil {
			return err
		}
		identify(&state, configs)
		web, stock, box := state.Service(app, "web"), state.Service(app, "stock"), state.Service(member, "box")
		wrong = nil
		if web == nil || stock == nil || box == nil || len(state.Containers) != 3 || web.Status != "running" || stock.Status != "running" || box.Status != "running" {
			wrong = fmt.Errorf("these containers are there: %v", state.Containers)
		} else if want := m.catalogue.releases[leader].web; web.Image != want {
			wrong = fmt.Errorf("web is of image %s, not %s", web.Image, want)
		} else {
			r, err := m.Run("docker", "inspect", "--format", "{{.Config.Env}}", member+"-box-1")
			if err != nil {
				return err
			}
			if !strings.Contains(r.Stdout, "VERSION="+follower+" ") && !strings.Contains(r.Stdout, "VERSION="+follower+"]") {
				wrong = fmt.Errorf("%s %s runs with %s of %s", app, leader, strings.TrimSpace(r.Output()), member)
			}
		}
		if wrong == nil || time.Now().After(end) {
			return wrong
		}
	}
}
