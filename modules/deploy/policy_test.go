package deploy

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// withPolicy is the tree of a release with a version and a policy, app.toml;
// "" is none.
func (g *rig) withPolicy(t tb, r release, version, toml string) *tree {
	tr := g.newTree(t, r)
	m := r.meta()
	m.ApplicationVersion = version
	if toml != "" {
		p, err := policy.ParseTOML([]byte(toml), r.app)
		require.NoError(t, err)
		m.Policy, err = p.Encode()
		require.NoError(t, err)
		m.Requires = append(m.Requires, artifact.FeaturePolicy)
	}
	raw, err := m.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(tr.Dir()+"/header/meta-data", raw, 0o644))
	return tr
}

// TestPolicyOnTheDevice: every rule that needs facts of the device allows and
// refuses, before anything is loaded.
func TestPolicyOnTheDevice(t *testing.T) {
	const noDown = "[downgrades]\nallow = false"
	db := release{app: "db", name: "db-1", images: []string{"db one"}}
	for _, c := range []struct {
		name                       string
		installed, installedPolicy string // of shop
		db                         string // its version; "" is not installed
		version, policy            string // of the artifact
		with                       func(g *rig)
		says                       string // "" is allowed
	}{
		{name: "from_versions", installed: "2.5-1", version: "3.0-1", policy: "[upgrades]\nfrom_versions = ['2\\.5-\\d+']"},
		{name: "from_versions refuses", installed: "2.4-1", version: "3.0-1", policy: "[upgrades]\nfrom_versions = ['2\\.5-\\d+']",
			says: `upgrades.from_versions of shop: version 3.0-1 cannot be installed over version 2.4-1: first install a version that matches 2\.5-\d+`},
		{name: "an older one", installed: "2.0.0", version: "1.9.0", policy: "managed = true"},
		{name: "the installed policy forbids an older one", installed: "2.0.0", installedPolicy: noDown, version: "1.9.0",
			says: "downgrades.allow of shop: the installed release forbids downgrades"},
		{name: "a client cannot insist", installed: "2.0.0", installedPolicy: noDown, version: "1.9.0",
			with: func(g *rig) { g.with = func(e *Engine) { e.Force = true } }, says: "downgrades.allow"},
		{name: "a person insists", installed: "2.0.0", installedPolicy: noDown, version: "1.9.0",
			with: func(g *rig) { g.with = func(e *Engine) { e.Force, e.Driver = true, "mender-app" } }},
		{name: "engine", version: "1", policy: "[orchestrator]\nminimum = '20.10'", with: func(g *rig) { g.w.engine = "20.10.24+dfsg1" }},
		{name: "engine refuses", version: "1", policy: "[orchestrator]\nminimum = '23.0'", with: func(g *rig) { g.w.engine = "20.10.24+dfsg1" },
			says: "orchestrator.minimum of shop: fake-engine has version 20.10.24+dfsg1: update it to 23.0 or later"},
		{name: "a sub-module that does not tell the engine's version", version: "1", policy: "[orchestrator]\nminimum = '20.10'",
			with: func(g *rig) {
				g.w.features = slices.DeleteFunc(g.w.features, func(f string) bool { return f == submodules.FeatureEngine })
			}, says: "the sub-module fake does not say which version its engine has: update the sub-module"},
		{name: "engine fails", version: "1", policy: "[orchestrator]\nminimum = '20.10'", with: func(g *rig) { g.w.fail["ENGINE"] = 1 }, says: "ENGINE was told to fail"},
		{name: "system", version: "1", policy: "[[platform.releases]]\nversion = '4\\..*'\nfiles = ['/p']", with: func(g *rig) { g.system("4.2", "/p") }},
		{name: "system refuses", version: "1", policy: "[[platform.releases]]\nversion = '4\\..*'\nfiles = ['/p']", with: func(g *rig) { g.system("4.2") },
			says: "install an update that brings the file /p"},
		{name: "nothing known of the system", version: "1", policy: "[[platform.releases]]\nversion = '.*'", says: "the version of the operating system is not known"},
		{name: "depends", db: "25.09-1", version: "1", policy: "[[depends]]\nname = 'db'\nversion = '25\\.09-\\d'"},
		{name: "depends refuses", db: "25.10-1", version: "1", policy: "[[depends]]\nname = 'db'\nversion = '25\\.09-\\d'", says: "depends of shop: db is installed in version 25.10-1"},
		{name: "depends warns", version: "1", policy: "[[depends]]\nname = 'db'\naction = 'warn'"},
		{name: "sick, and no policy", installed: "1", version: "2", with: (*rig).sicken},
		{name: "from_unhealthy", installed: "1", version: "2", policy: "[upgrades]\nfrom_unhealthy = true", with: (*rig).sicken},
		{name: "from_unhealthy refuses", installed: "1", version: "2", policy: "managed = true", with: (*rig).sicken,
			says: "upgrades.from_unhealthy of shop: the installed release is not healthy: see mender-app status shop"},
		{name: "from_unhealthy: a person insists", installed: "1", version: "2", policy: "managed = true", with: func(g *rig) {
			g.sicken()
			g.with = func(e *Engine) { e.Force, e.Driver = true, journal.DriverPerson }
		}},
		{name: "from_unhealthy: it is stopped", installed: "1", version: "2", policy: "managed = true", with: func(g *rig) {
			require.NoError(g.t, g.engine().Stop(g.t.Context(), "shop"))
		}},
		{name: "from_unhealthy: nobody can tell", installed: "1", version: "2", policy: "managed = true", with: func(g *rig) { g.w.fail["HEALTHY"] = 1 }, says: "HEALTHY was told to fail"},
		{name: "depends: not installed", version: "1", policy: "[[depends]]\nname = 'db'", says: "depends of shop: db is not installed: install db first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.w.features = append(g.w.features, submodules.FeatureEngine)
			c1 := newClient(g, true)
			if c.db != "" {
				require.NoError(t, c1.install(g.withPolicy(t, db, c.db, "")))
				require.NoError(t, c1.commit())
			}
			if c.installed != "" {
				require.NoError(t, c1.install(g.withPolicy(t, v1, c.installed, c.installedPolicy)))
				require.NoError(t, c1.commit())
			}
			if c.with != nil {
				c.with(g)
			}
			g.w.calls = nil
			err := c1.install(g.withPolicy(t, v2, c.version, c.policy))
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, c1.commit())
				g.runs(t, "shop", &v2)
				return
			}
			require.ErrorIs(t, err, ErrUnfit)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
			for _, call := range g.w.calls {
				require.Contains(t, []string{"ENGINE shop", "HEALTHY shop"}, call, "nothing but questions")
			}
			clear(g.w.sick)
			if c.installed != "" {
				g.runs(t, "shop", &v1)
				g.clean(t, "shop")
			}
			require.Contains(t, g.history(t, "shop"), "shop-2 refused")
		})
	}
}

// sicken makes the installed release unhealthy.
func (g *rig) sicken() { g.w.sick[v1.compose()] = true }

// system makes the device one with this version of its system and these files.
func (g *rig) system(version string, files ...string) {
	g.with = func(e *Engine) {
		e.System = func(_ context.Context, asked []string) (policy.Platform, error) {
			p := policy.Platform{Version: version, Files: map[string]bool{}}
			for _, f := range asked {
				p.Files[f] = slices.Contains(files, f)
			}
			return p, nil
		}
	}
}

// TestDependentsAreKept: what an application needs is known from its release in
// the store, and an update of another one that would break it is refused.
func TestDependentsAreKept(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	db := func(n string) release { return release{app: "db", name: "db-" + n, images: []string{"db " + n}} }
	install := func(tr *tree) error {
		if err := c.install(tr); err != nil {
			return err
		}
		return c.commit()
	}
	one, two := db("1"), db("2")
	require.NoError(t, install(g.withPolicy(t, one, "1.0", "")))
	require.NoError(t, install(g.withPolicy(t, v1, "7.1", "[[depends]]\nname = 'db'\nversion = '1\\..*'")))

	err := install(g.withPolicy(t, two, "2.0", ""))
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, `depends of shop: it needs db in a version that matches 1\..*, and the artifact has version 2.0: update shop first`)
	g.runs(t, "db", &one)
	require.Contains(t, g.history(t, "db"), "db-2 refused")

	require.NoError(t, install(g.withPolicy(t, two, "2.0", "[[dependent_parent_exceptions]]\nname = 'shop'\nversion = '7\\.1'")))
	g.runs(t, "db", &two)

	// A rollback that somebody asks for is not refused.
	_, err = g.engine().GoBack(t.Context(), "shop", "")
	require.ErrorIs(t, err, store.ErrNoWayBack)
	_, err = g.engine().GoBack(t.Context(), "db", "")
	require.NoError(t, err)
	g.runs(t, "db", &one)
}

// TestCircleOverTheStore: an application that would come to depend on itself is
// refused.
func TestCircleOverTheStore(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	db := release{app: "db", name: "db-1", images: []string{"db one"}}
	require.NoError(t, c.install(g.withPolicy(t, db, "1", "[[depends]]\nname = 'shop'\naction = 'warn'")))
	require.NoError(t, c.commit())
	err := c.install(g.withPolicy(t, v1, "1", "[[depends]]\nname = 'db'"))
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "shop needs db needs shop")
}

// TestPolicyOfANewerProduct: what this version cannot decide is refused by
// name, in the metadata as a whole and in the policy.
func TestPolicyOfANewerProduct(t *testing.T) {
	for name, c := range map[string]struct{ requires, policy, says string }{
		"another kind":  {"policy/2", `{"x":1}`, "requires policy/2, which this version of mender-app does not have"},
		"a newer key":   {"policy/1", `{"quorum":3}`, "bad policy: quorum: unknown key"},
		"a circle of 1": {"policy/1", `{"depends":[{"name":"shop"}]}`, "shop depends on itself"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			tr := g.newTree(t, v1)
			var m map[string]any
			raw, err := v1.meta().Encode()
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &m))
			m["requires"], m["policy"] = []string{c.requires}, json.RawMessage(c.policy)
			raw, err = json.Marshal(m)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(tr.Dir()+"/header/meta-data", raw, 0o644))
			err = newClient(g, true).install(tr)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, g.w.calls)
			require.Contains(t, g.history(t, "shop"), "shop-1 refused")
		})
	}
}

// TestNoPolicyCostsNothing: an artifact without a policy makes the calls and
// the writes that it makes where nothing knows of policies, also beside
// applications that have one.
func TestNoPolicyCostsNothing(t *testing.T) {
	db := release{app: "db", name: "db-1", images: []string{"db one"}}
	run := func(beside string) (calls, steps []string) {
		g := newRig(t)
		g.w.features = append(g.w.features, submodules.FeatureEngine)
		g.w.engine = "1.0"
		c := newClient(g, true)
		require.NoError(t, c.install(g.withPolicy(t, db, "1.0", beside)))
		require.NoError(t, c.commit())
		require.NoError(t, c.install(g.newTree(t, v1)))
		require.NoError(t, c.commit())
		g.w.calls = nil
		defer durable.Inject(func(name string) error {
			steps = append(steps, name)
			return nil
		})()
		require.NoError(t, c.install(g.newTree(t, v2)))
		require.NoError(t, c.commit())
		return g.w.calls, steps
	}
	calls, steps := run("")
	require.NotEmpty(t, steps)
	for _, call := range calls {
		require.NotContains(t, call, "ENGINE")
	}
	again, stepsAgain := run("managed = true\n[orchestrator]\nminimum = '1.0'\n[[depends]]\nname = 'shop'\naction = 'warn'")
	require.Equal(t, calls, again)
	require.Equal(t, steps, stepsAgain)
}

// TestResumeGoesByClass: interrupted deployments of several applications are
// ended in the order that their policies say, by name without one.
func TestResumeGoesByClass(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	classes := map[string]string{
		"a": "", "b": "managed = true\nclass = 'reporting'", "c": "managed = true\nclass = 'critical'", "d": "managed = true\nclass = 'storage'\n[[depends]]\nname = 'b'",
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		r := release{app: name, name: name + "-1", images: []string{name + " one"}}
		require.NoError(t, c.install(g.withPolicy(t, r, "1", classes[name])))
		require.NoError(t, c.commit())
	}
	require.Equal(t, []string{"c", "b", "d", "a"}, facts.InOrder(g.engine().Store, g.engine().Log, []string{"a", "b", "c", "d"}))
	require.Equal(t, []string{"a", "x"}, facts.InOrder(g.engine().Store, g.engine().Log, []string{"a", "x"}), "one without a release is none that is lost")

	// Each is left in the middle of an update.
	for _, name := range []string{"a", "b", "c", "d"} {
		a, err := g.engine().open(name)
		require.NoError(t, err)
		r, err := a.Release(a.Current)
		require.NoError(t, err)
		r.ID = a.NextID("next")
		require.NoError(t, a.PutRelease(r))
		a.Deployment = &store.Deployment{ID: r.ID, From: a.Current, To: r.ID, Driver: "mender", Phase: journal.Downloading}
		require.NoError(t, a.Save())
	}
	found, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	var ended []string
	for _, r := range found {
		require.NoError(t, r.Err)
		require.False(t, r.Waiting)
		ended = append(ended, r.App)
	}
	require.Equal(t, []string{"c", "b", "d", "a"}, ended)
}
