package deploy

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

const applyBase = "[[depends]]\nname = 'base'\nversion = '2'\naction = 'apply'\n"

// The shop needs base in version 2, which needs a disk.
var (
	t2       = release{app: "shop", name: "shop-t2", version: "2", images: []string{"web two", "side same"}, policy: applyBase}
	t3       = release{app: "shop", name: "shop-t3", version: "3", images: []string{"web three", "side same"}, policy: applyBase, sick: true}
	t5       = release{app: "shop", name: "shop-t5", version: "5", images: []string{"web five", "side same"}, policy: applyBase, reboot: true}
	t6       = release{app: "shop", name: "shop-t6", version: "6", images: []string{"web six"}, policy: applyBase + "[upgrades]\nrollback_on_failure = false", sick: true}
	base1    = release{app: "base", name: "base-1", version: "1", images: []string{"base one"}}
	base2    = release{app: "base", name: "base-2", version: "2", images: []string{"base two"}, policy: "[[depends]]\nname = 'disk'\naction = 'apply'"}
	base2bad = release{app: "base", name: "base-2", version: "2", images: []string{"base bad"}, policy: base2.policy + "\n[upgrades]\nrollback_on_failure = false", sick: true}
	base3    = release{app: "base", name: "base-3", version: "2", images: []string{"base three"}}
	base3bad = release{app: "base", name: "base-3", version: "2", images: []string{"base worse"}, policy: "[upgrades]\nrollback_on_failure = false", sick: true}
	disk1    = release{app: "disk", name: "disk-1", version: "1", images: []string{"disk one"}}
)

// togetherScenarios install a release whose policy wants others installed first.
var togetherScenarios = []scenario{
	{name: "together: update", first: &v1, others: []release{base1}, run: installCommit, what: t2, staged: []release{base3}},
	{name: "together: update fails", first: &v1, others: []release{base1}, run: installCommit, what: t3, staged: []release{base3}, alike: true},
	{name: "together: first install", run: installCommit, what: t2, staged: []release{base2, disk1}, alike: true},
	{name: "together: what comes first fails", first: &v1, others: []release{base1}, run: installCommit, what: t2, staged: []release{base3bad}, alike: true},
	{name: "together: update rolled back", first: &v1, others: []release{base1}, run: installRollback, what: t2, staged: []release{base3}, alike: true},
	{name: "together: reboot", first: &v1, others: []release{base1}, run: installCommit, what: t5, staged: []release{base3}, daemon: true},
}

// stagedReleases are what is staged in a rig.
type stagedReleases struct {
	g    *rig
	list []release
}

func (s *stagedReleases) List() (out []policy.Staged, err error) {
	for _, r := range s.list {
		m := r.meta()
		app := policy.App{Name: r.app, Version: r.version, Release: r.name}
		if m.Policy != nil {
			if app.Policy, err = policy.ParseJSON(m.Policy, r.app, r.version); err != nil {
				return nil, err
			}
		}
		out = append(out, policy.Staged{App: app})
	}
	return out, nil
}

func (s *stagedReleases) Open(app, name string) (*StagedArtifact, error) {
	for _, r := range s.list {
		if r.app == app && r.name == name {
			s.g.w.sick[r.compose()] = r.sick
			return &StagedArtifact{Meta: r.meta(), Payload: (&tree{payload: r.payload(s.g.t)}).streams(), Closer: io.NopCloser(nil)}, nil
		}
	}
	return nil, fmt.Errorf("%s is not staged", name)
}

// whole asserts that the members are as their leader is: all of the staged releases run if
// the shop runs the release that needs them, and the older ones if it does not. After
// another update of the shop, either may be.
func (g *rig) whole(t tb, s scenario) {
	t.Helper()
	if len(s.staged) == 0 {
		return
	}
	shop := g.app(t, "shop")
	leads := shop != nil && shop.Deployment != nil && shop.Deployment.Members != nil
	updated := g.w.running["base"].compose == s.staged[0].compose()
	switch run := g.w.running["shop"].compose; run {
	case s.what.compose():
		require.True(t, updated, "the shop runs without what it needs")
	case v4.compose():
	default:
		require.False(t, updated, "what the shop wanted is still there")
	}
	for _, r := range s.staged {
		want := &r
		if !updated {
			want = nil
			for _, o := range s.others {
				if o.app == r.app {
					want = &o
				}
			}
		}
		a := g.app(t, r.app)
		if leads && updated {
			require.NotNil(t, a.Deployment, "it follows its leader")
			g.runs(t, r.app, want)
			continue
		}
		g.runs(t, r.app, want)
		g.clean(t, r.app)
	}
}

func withStaged(t *testing.T, list ...release) (*rig, *client) {
	g := newRig(t)
	g.staged = list
	return g, newClient(g, true)
}

func TestTogether(t *testing.T) {
	s := scenario{what: t2, others: []release{base1}, staged: []release{base2, disk1}}
	g, c := withStaged(t, base2, disk1)
	for _, r := range []release{v1, base1} {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	require.NoError(t, c.install(g.newTree(t, t2)))
	g.whole(t, s)

	// Nobody decides about a member alone, and nobody settles it before its leader.
	for what, err := range map[string]error{
		"stop":     g.engine().Stop(t.Context(), "base"),
		"purge":    g.engine().Purge(t.Context(), "base", false, true),
		"rollback": func() error { _, err := g.engine().GoBack(t.Context(), "base", ""); return err }(),
	} {
		require.ErrorIs(t, err, ErrOpen, what)
		require.ErrorContains(t, err, "base-2 is installed and follows the update of shop", what)
	}
	found, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.Len(t, found, 3)
	for _, r := range found {
		require.True(t, r.Waiting, r.App)
	}
	require.Equal(t, "shop", found[0].App, "the leader is looked at first")
	g.whole(t, s)

	require.NoError(t, c.commit())
	g.whole(t, s)
	for _, app := range []string{"base", "disk"} {
		records, err := g.engine().Store.History(app)
		require.NoError(t, err)
		last := records[len(records)-1]
		require.Equal(t, store.StatusInstalled, last.Status)
		require.Equal(t, &store.Leader{Application: "shop", Number: 2, Release: "2-shop-t2"}, last.Leader)
	}
	records, err := g.engine().Store.History("shop")
	require.NoError(t, err)
	require.Equal(t, []store.Member{{Application: "disk", ArtifactName: "disk-1"}, {Application: "base", ArtifactName: "base-2"}}, records[1].Members)

	// What is met is not installed again.
	require.NoError(t, c.install(g.newTree(t, t2)))
	require.Nil(t, g.app(t, "base").Deployment)
	require.NoError(t, c.commit())
}

func TestTogetherFails(t *testing.T) {
	for name, s := range map[string]scenario{
		"the leader":   {what: t3, others: []release{base1}, staged: []release{base2, disk1}},
		"a member":     {what: t2, others: []release{base1}, staged: []release{base2bad, disk1}},
		"all is first": {what: t3, staged: []release{base2, disk1}},
	} {
		t.Run(name, func(t *testing.T) {
			g, c := withStaged(t, s.staged...)
			for _, r := range append(s.others, v1) {
				require.NoError(t, c.install(g.newTree(t, r)))
				require.NoError(t, c.commit())
			}
			require.ErrorContains(t, c.install(g.newTree(t, s.what)), "healthy")
			require.False(t, c.broken)
			c.holds(t, "shop")
			g.whole(t, s)
			require.Contains(t, g.history(t, "disk"), "disk-1 rolled-back")
		})
	}
}

// TestTogetherLeaderStays: what failed and stays for a person keeps what it needs.
func TestTogetherLeaderStays(t *testing.T) {
	g, c := withStaged(t, base2, disk1)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	require.Error(t, c.install(g.newTree(t, t6)))
	require.True(t, g.failed("shop"))
	g.whole(t, scenario{what: t6, staged: []release{base2, disk1}})
	g.clean(t, "base")
}

func TestTogetherRefused(t *testing.T) {
	for name, c := range map[string]struct {
		installed, staged []release
		what              release
		says              string
	}{
		"nothing staged":         {what: t2, says: "depends of shop: base is not installed, and no matching artifact is staged"},
		"what that one needs":    {what: t2, staged: []release{base2}, says: "depends of base: disk is not installed, and no matching artifact"},
		"a member's other rules": {what: t2, staged: []release{{app: "base", name: "base-2", version: "2", images: base2.images, policy: "[upgrades]\nfrom_versions = ['0']"}}, installed: []release{base1}, says: "depends of shop: base (base-2), which has to be installed first: refused: upgrades.from_versions of base: version 2 cannot be installed over version 1"},
		"others that need the old one": {what: t2, staged: []release{base2, disk1},
			installed: []release{base1, {app: "other", name: "other-1", images: o1.images, policy: "[[depends]]\nname = 'base'\nversion = '1'"}}, says: "depends of other: it needs base in a version that matches 1"},
	} {
		t.Run(name, func(t *testing.T) {
			g, cl := withStaged(t, c.staged...)
			for _, r := range c.installed {
				require.NoError(t, cl.install(g.newTree(t, r)))
				require.NoError(t, cl.commit())
			}
			g.w.calls = nil
			err := cl.install(g.newTree(t, c.what))
			require.ErrorIs(t, err, ErrUnfit)
			require.ErrorContains(t, err, c.says)
			for _, call := range g.w.calls {
				require.NotContains(t, call, "LOAD")
			}
			require.Equal(t, []string{"shop-t2 refused"}, g.history(t, "shop"))
		})
	}
}

// TestTogetherAutomatic: what the device does by itself, it does only with managed ones.
func TestTogetherAutomatic(t *testing.T) {
	g, c := withStaged(t, base2, disk1)
	g.with = func(e *Engine) { e.Caller = journal.Caller{Driver: journal.DriverPerson, Automatic: true} }
	managed := t2
	managed.policy = "managed = true\n" + t2.policy
	require.ErrorContains(t, c.install(g.newTree(t, managed)), "managed of disk: it is not managed")
}

// TestTogetherLeaderIsGone: damage to the leader's journal. Then its current release says
// what happens to a member.
func TestTogetherLeaderIsGone(t *testing.T) {
	for name, want := range map[string]*release{"1-shop-1": &base1, "2-shop-t2": &base2} {
		g, c := withStaged(t, base2, disk1)
		for _, r := range []release{v1, base1} {
			require.NoError(t, c.install(g.newTree(t, r)))
			require.NoError(t, c.commit())
		}
		require.NoError(t, c.install(g.newTree(t, t2)))
		a := g.app(t, "shop")
		a.Deployment, a.Current = nil, name
		require.NoError(t, a.Save())
		found, err := g.engine().Resume(t.Context(), "", "")
		require.NoError(t, err)
		for _, r := range found {
			require.NoError(t, r.Err)
			require.False(t, r.Waiting)
		}
		g.runs(t, "base", want)
		require.Nil(t, g.app(t, "base").Deployment)
	}
}

// TestTogetherAborted: who aborts the leader's update ends that of the member at work.
func TestTogetherAborted(t *testing.T) {
	s := scenario{what: t2, others: []release{base1}, staged: []release{base3}}
	g, c := withStaged(t, base3)
	for _, r := range []release{v1, base1} {
		require.NoError(t, installCommit(c, g.newTree(t, r)))
	}
	g.w.stuck = map[string]func() error{"ROLLOUT": func() error { return g.abort(t) }}
	g.w.calls = nil
	require.ErrorIs(t, c.install(g.newTree(t, t2)), ErrAborted)
	require.Contains(t, g.w.calls, "ROLLBACK base", "it was at work")
	require.NotContains(t, g.w.calls, "ROLLOUT shop")
	c.holds(t, "shop")
	g.whole(t, s)
}

// TestTogetherFirstIsUndone: the next download of an application may be what undoes its first
// installation as a member.
func TestTogetherFirstIsUndone(t *testing.T) {
	for _, next := range []release{disk1, v4} {
		g, c := withStaged(t, base2, disk1)
		c.cpp = false // it begins another update
		require.NoError(t, c.install(g.newTree(t, t2)))
		require.NoError(t, c.install(g.newTree(t, next)))
		require.NoError(t, c.commit())
		g.runs(t, next.app, &next)
		g.runs(t, "base", nil)
		require.Equal(t, []string{"shop-t2 rolled-back"}, g.history(t, "shop")[:1])
	}
}

// TestTogetherCheck: the check says what would be installed first.
func TestTogetherCheck(t *testing.T) {
	g, _ := withStaged(t, base2, disk1)
	f, err := g.engine().Check(t.Context(), t2.name, t2.meta(), Manifests{})
	require.NoError(t, err)
	require.NoError(t, f.Refused())
	require.Equal(t, []store.Member{{Application: "disk", ArtifactName: "disk-1"}, {Application: "base", ArtifactName: "base-2"}}, f.First)
	require.NoDirExists(t, g.dir+"/store")
}
