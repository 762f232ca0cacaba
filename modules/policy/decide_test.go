package policy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parse is a policy from the text of app.toml.
func parse(t testing.TB, app, text string) *Policy {
	t.Helper()
	p, err := ParseTOML([]byte(text), app)
	require.NoError(t, err)
	return p
}

func TestDecide(t *testing.T) {
	const from = "[upgrades]\nfrom_versions = ['2\\.5-\\d+', '2\\.6-1']"
	const noDown = "[downgrades]\nallow = false"
	type app struct{ name, version, policy string }
	for _, c := range []struct {
		name      string
		incoming  app
		installed []app
		mode      Mode
		op        Operation
		sick      string // an installed application
		engine    string
		platform  Platform
		refused   string // a part of the line; "" is allowed
		warns     string
	}{
		{name: "no policy, nothing installed", incoming: app{"shop", "", ""}},
		{name: "no policy over no policy", incoming: app{"shop", "1.0", ""}, installed: []app{{"shop", "2.0", ""}}},

		{name: "from_versions: first installation", incoming: app{"shop", "3.0-1", from}},
		{name: "from_versions: one matches", incoming: app{"shop", "3.0-1", from}, installed: []app{{"shop", "2.5-12", ""}}},
		{name: "from_versions: none matches", incoming: app{"shop", "3.0-1", from}, installed: []app{{"shop", "2.4-1", ""}},
			refused: `upgrades.from_versions of shop: version 3.0-1 cannot be installed over version 2.4-1: first install a version that matches 2\.5-\d+ or 2\.6-1`},
		{name: "from_versions: the whole version", incoming: app{"shop", "3.0-1", from}, installed: []app{{"shop", "2.6-10", ""}}, refused: "upgrades.from_versions"},
		{name: "from_versions: no version installed", incoming: app{"shop", "3.0-1", from}, installed: []app{{"shop", "", ""}},
			refused: "over a release without a version"},
		{name: "from_versions: automatic too", incoming: app{"shop", "3.0-1", "managed = true\n" + from}, installed: []app{{"shop", "2.4-1", ""}}, mode: Automatic, refused: "upgrades.from_versions"},
		{name: "from_versions: force does not help", incoming: app{"shop", "3.0-1", from}, installed: []app{{"shop", "2.4-1", ""}}, mode: Force, refused: "upgrades.from_versions"},
		{name: "from_versions: the same version again", incoming: app{"shop", "3.0-1", from}, installed: []app{{"shop", "3.0-1", from}}},
		{name: "from_versions: an empty list", incoming: app{"shop", "3.0-1", "[upgrades]\nfrom_versions = []"}, installed: []app{{"shop", "2.5-1", ""}},
			refused: "it cannot update any version: remove the application first"},
		{name: "from_versions: an empty list, first installation", incoming: app{"shop", "3.0-1", "[upgrades]\nfrom_versions = []"}},

		{name: "from_unhealthy: it is healthy", incoming: app{"shop", "2", "managed = true"}, installed: []app{{"shop", "1", ""}}},
		{name: "from_unhealthy: it is sick", incoming: app{"shop", "2", "managed = true"}, installed: []app{{"shop", "1", ""}}, sick: "shop",
			refused: "upgrades.from_unhealthy of shop: the installed release is not healthy: see mender-app status shop"},
		{name: "from_unhealthy: another one is sick", incoming: app{"shop", "2", "managed = true"}, installed: []app{{"shop", "1", ""}, {"db", "1", ""}}, sick: "db"},
		{name: "from_unhealthy: allowed", incoming: app{"shop", "2", "[upgrades]\nfrom_unhealthy = true"}, installed: []app{{"shop", "1", ""}}, sick: "shop"},
		{name: "from_unhealthy: no policy", incoming: app{"shop", "2", ""}, installed: []app{{"shop", "1", "managed = true"}}, sick: "shop"},
		{name: "from_unhealthy: a person insists", incoming: app{"shop", "2", "managed = true"}, installed: []app{{"shop", "1", ""}}, sick: "shop", mode: Force},

		{name: "downgrades: allowed where nothing is said", incoming: app{"shop", "1.0", "managed = true"}, installed: []app{{"shop", "2.0", "managed = true"}}},
		{name: "downgrades: the installed forbids", incoming: app{"shop", "1.9.0", ""}, installed: []app{{"shop", "v1.10.0", noDown}},
			refused: "downgrades.allow of shop: the installed release forbids downgrades, and version 1.9.0 is older than version v1.10.0: install a newer version, or this one with mender-app install --force"},
		{name: "downgrades: the artifact forbids", incoming: app{"shop", "1.9.0", noDown}, installed: []app{{"shop", "1.10.0", ""}}, refused: "the artifact forbids downgrades"},
		{name: "downgrades: a newer one", incoming: app{"shop", "1.11.0", noDown}, installed: []app{{"shop", "1.10.0", noDown}}},
		{name: "downgrades: the same one", incoming: app{"shop", "1.10.0", noDown}, installed: []app{{"shop", "1.10.0", noDown}}},
		{name: "downgrades: by the client", incoming: app{"shop", "1.0", ""}, installed: []app{{"shop", "2.0", noDown}}, mode: ByClient, refused: "downgrades.allow"},
		{name: "downgrades: by hand", incoming: app{"shop", "1.0", ""}, installed: []app{{"shop", "2.0", noDown}}, mode: ByHand, refused: "downgrades.allow"},
		{name: "downgrades: a person insists", incoming: app{"shop", "1.0", ""}, installed: []app{{"shop", "2.0", noDown}}, mode: Force},
		{name: "downgrades: no order", incoming: app{"shop", "winter", ""}, installed: []app{{"shop", "2.0", noDown}}, refused: "it is not known whether version winter is older than version 2.0"},
		{name: "downgrades: no version", incoming: app{"shop", "", ""}, installed: []app{{"shop", "", noDown}}, refused: "a release without a version is older than a release without a version"},

		{name: "orchestrator: inside", incoming: app{"shop", "1", "[orchestrator]\nminimum = '20.10'\nmaximum = '28.5'"}, engine: "20.10.24+dfsg1"},
		{name: "orchestrator: a maximum without a patch takes all patches", incoming: app{"shop", "1", "[orchestrator]\nmaximum = 'v1.29'"}, engine: "v1.29.14+k3s1"},
		{name: "orchestrator: a maximum with a patch", incoming: app{"shop", "1", "[orchestrator]\nmaximum = '1.29.3'"}, engine: "v1.29.4",
			refused: "orchestrator.maximum of shop: docker has version v1.29.4: use 1.29.3 or earlier"},
		{name: "orchestrator: below", incoming: app{"shop", "1", "[orchestrator]\nminimum = '23.0.1'"}, engine: "23.0.0",
			refused: "orchestrator.minimum of shop: docker has version 23.0.0: update it to 23.0.1 or later"},
		{name: "orchestrator: who built it does not count", incoming: app{"shop", "1", "[orchestrator]\nminimum = '1.29.2'"}, engine: "v1.29.2-gke.100"},
		{name: "orchestrator: not announced", incoming: app{"shop", "1", "[orchestrator]\nminimum = '23.0'"},
			refused: "orchestrator of shop: the sub-module docker-compose does not say which version its engine has: update the sub-module"},
		{name: "orchestrator: no version at all", incoming: app{"shop", "1", "[orchestrator]\nminimum = '23.0'"}, engine: "library-import", refused: `calls its version "library-import"`},
		{name: "orchestrator: not asked for", incoming: app{"shop", "1", "managed = true"}},

		{name: "platform: a release", incoming: app{"shop", "1", "[[platform.releases]]\nversion = '4\\.2\\..*'"}, platform: Platform{Version: "4.2.7"}},
		{name: "platform: another release", incoming: app{"shop", "1", "[[platform.releases]]\nversion = '4\\.2\\..*'"}, platform: Platform{Version: "4.20.7"},
			refused: `platform.releases of shop: release 4.20.7 of the operating system is not supported: use one that matches 4\.2\..*`},
		{name: "platform: not known", incoming: app{"shop", "1", "[[platform.releases]]\nversion = '.*'"}, refused: "the version of the operating system is not known"},
		{name: "platform: a patch is there", incoming: app{"shop", "1", "[[platform.releases]]\nversion = '4'\nfiles = ['/p1']\nprovides = {p2 = '7'}"},
			platform: Platform{Version: "4", Files: map[string]bool{"/p1": true}, Provides: map[string]string{"p2": "7"}}},
		{name: "platform: a file lacks", incoming: app{"shop", "1", "[[platform.releases]]\nversion = '4'\nfiles = ['/p1']\nprovides = {p2 = '7'}"},
			platform: Platform{Version: "4", Provides: map[string]string{"p2": "7"}}, refused: "install an update that brings the file /p1"},
		{name: "platform: a provide lacks", incoming: app{"shop", "1", "[[platform.releases]]\nversion = '4'\nfiles = ['/p1']\nprovides = {p2 = '7'}"},
			platform: Platform{Version: "4", Files: map[string]bool{"/p1": true}, Provides: map[string]string{"p2": "71"}}, refused: "install an update that brings p2 matching 7 among Mender's provides"},
		{name: "platform: another entry has no patches", incoming: app{"shop", "1", "[[platform.releases]]\nversion = '4'\nfiles = ['/p1']\n[[platform.releases]]\nversion = '4|5'"},
			platform: Platform{Version: "4"}},

		{name: "depends: met", incoming: app{"shop", "1", "[[depends]]\nname = 'db'\nversion = '25\\.09-\\d+'"}, installed: []app{{"db", "25.09-3", ""}}},
		{name: "depends: any version", incoming: app{"shop", "1", "[[depends]]\nname = 'db'"}, installed: []app{{"db", "", ""}}},
		{name: "depends: not installed", incoming: app{"shop", "1", "[[depends]]\nname = 'db'\nversion = '25\\.09-\\d+'"},
			refused: `depends of shop: db is not installed: install db in a version that matches 25\.09-\d+ first`},
		{name: "depends: another version", incoming: app{"shop", "1", "[[depends]]\nname = 'db'\nversion = '25\\.09-\\d+'"}, installed: []app{{"db", "25.10-1", ""}},
			refused: "depends of shop: db is installed in version 25.10-1"},
		{name: "depends: warn", incoming: app{"shop", "1", "[[depends]]\nname = 'db'\naction = 'warn'"}, warns: "db is not installed"},
		{name: "depends: ignore", incoming: app{"shop", "1", "[[depends]]\nname = 'db'\naction = 'ignore'"}},
		{name: "depends: two in a circle", incoming: app{"shop", "1", "[[depends]]\nname = 'db'"}, installed: []app{{"db", "1", "[[depends]]\nname = 'shop'"}},
			refused: "depends of shop: it depends on itself: shop needs db needs shop"},
		{name: "depends: three in a circle", incoming: app{"a", "1", "[[depends]]\nname = 'b'"},
			installed: []app{{"b", "1", "[[depends]]\nname = 'c'"}, {"c", "1", "[[depends]]\nname = 'a'\naction = 'warn'"}}, refused: "a needs b needs c needs a"},
		{name: "depends: what is ignored makes no circle", incoming: app{"shop", "1", "[[depends]]\nname = 'db'"}, installed: []app{{"db", "1", "[[depends]]\nname = 'shop'\naction = 'ignore'"}}},
		{name: "depends: the policy that is replaced makes no circle", incoming: app{"shop", "2", "[[depends]]\nname = 'db'"},
			installed: []app{{"db", "1", ""}, {"shop", "1", "[[depends]]\nname = 'web'"}, {"web", "1", ""}}},

		{name: "dependents: still met", incoming: app{"db", "2.1", ""}, installed: []app{{"db", "2.0", ""}, {"shop", "1", "[[depends]]\nname = 'db'\nversion = '2\\..*'"}}},
		{name: "dependents: broken", incoming: app{"db", "3.0", ""}, installed: []app{{"db", "2.0", ""}, {"shop", "1", "[[depends]]\nname = 'db'\nversion = '2\\..*'"}},
			refused: `depends of shop: it needs db in a version that matches 2\..*, and the artifact has version 3.0: update shop first, or name it in dependent_parent_exceptions of db`},
		{name: "dependents: excepted", incoming: app{"db", "3.0", "[[dependent_parent_exceptions]]\nname = 'shop'\nversion = '1\\.\\d'"},
			installed: []app{{"db", "2.0", ""}, {"shop", "1.7", "[[depends]]\nname = 'db'\nversion = '2\\..*'"}}},
		{name: "dependents: another version is excepted", incoming: app{"db", "3.0", "[[dependent_parent_exceptions]]\nname = 'shop'\nversion = '1\\.\\d'"},
			installed: []app{{"db", "2.0", ""}, {"shop", "1.77", "[[depends]]\nname = 'db'\nversion = '2\\..*'"}}, refused: "depends of shop"},
		{name: "dependents: it only warns", incoming: app{"db", "3.0", ""}, installed: []app{{"db", "2.0", ""}, {"shop", "1", "[[depends]]\nname = 'db'\nversion = '2\\..*'\naction = 'warn'"}},
			warns: "depends of shop: it needs db"},
		{name: "dependents: broken before", incoming: app{"db", "4.0", ""}, installed: []app{{"db", "3.0", ""}, {"shop", "1", "[[depends]]\nname = 'db'\nversion = '2\\..*'"}}},

		{name: "remove: nobody needs it", op: Remove, incoming: app{"db", "2.0", ""}, installed: []app{{"db", "2.0", ""}, {"shop", "1", ""}}},
		{name: "remove: needed", op: Remove, incoming: app{"db", "2.0", ""}, installed: []app{{"db", "2.0", ""}, {"shop", "1", "[[depends]]\nname = 'db'"}},
			refused: "depends of shop: it needs db: remove shop first"},
		{name: "remove: excepted", op: Remove, incoming: app{"db", "2.0", "[[dependent_parent_exceptions]]\nname = 'shop'\nversion = '.*'"},
			installed: []app{{"db", "2.0", ""}, {"shop", "1", "[[depends]]\nname = 'db'"}}},

		{name: "automatic: not managed", incoming: app{"shop", "1", ""}, mode: Automatic, refused: "managed of shop: it is not managed"},
		{name: "automatic: managed", incoming: app{"shop", "1", "managed = true"}, mode: Automatic},
	} {
		t.Run(c.name, func(t *testing.T) {
			make := func(a app) App {
				out := App{Name: a.name, Version: a.version}
				if a.policy != "" {
					out.Policy = parse(t, a.name, a.policy)
				}
				return out
			}
			r := Request{Operation: Install, Mode: ByHand, App: make(c.incoming), Engine: Engine{"docker", c.engine}, Platform: c.platform}
			if c.engine == "" {
				r.Engine.Name = "docker-compose"
			}
			if c.mode != "" {
				r.Mode = c.mode
			}
			if c.op != "" {
				r.Operation = c.op
			}
			for _, a := range c.installed {
				r.Installed = append(r.Installed, make(a))
				r.Installed[len(r.Installed)-1].Sick = a.name == c.sick
			}
			d := Decide(r)
			if c.refused == "" {
				require.Nil(t, d.Refused)
			} else {
				require.NotNil(t, d.Refused)
				assert.Contains(t, d.Refused.String(), c.refused)
			}
			if c.warns == "" {
				assert.Empty(t, d.Warnings)
			} else {
				require.Len(t, d.Warnings, 1)
				assert.Contains(t, d.Warnings[0].String(), c.warns)
			}
		})
	}
}

func TestADependencyInAnOpenUpdateIsNotMet(t *testing.T) {
	r := Request{
		Operation: Install, App: App{Name: "shop", Policy: parse(t, "shop", "[[depends]]\nname = 'db'")},
		Installed: []App{{Name: "db", Version: "1", Status: Open}},
	}
	d := Decide(r)
	require.NotNil(t, d.Refused)
	assert.Contains(t, d.Refused.String(), "an update of db is not complete")
	r.Installed[0].Status = ""
	assert.Nil(t, Decide(r).Refused)
}

// many makes n applications with together n*each dependencies and no circle;
// the last one is the incoming.
func many(t testing.TB, n, each int) (incoming App, installed []App) {
	for i := range n {
		p := &Policy{Managed: true, Class: classes[i%len(classes)]}
		for k := 1; k <= each && k <= i; k++ {
			p.Depends = append(p.Depends, Dependency{Name: fmt.Sprintf("app%d", i-k), Version: `1\.\d+-(a|b)+`})
		}
		a := App{Name: fmt.Sprintf("app%d", i), Version: "1.7-abab", Policy: p}
		require.NoError(t, p.check(a.Name))
		installed = append(installed, a)
	}
	incoming = installed[n-1]
	return incoming, installed
}

// TestWorkIsLinear counts what a decision looks at: each dependency a few
// times, however they are connected.
func TestWorkIsLinear(t *testing.T) {
	const apps, each = 200, 5
	incoming, installed := many(t, apps, each)
	d := Decide(Request{Operation: Install, App: incoming, Installed: installed})
	require.Nil(t, d.Refused)
	assert.Positive(t, d.work)
	assert.LessOrEqual(t, d.work, 3*apps*each)

	o := newOrdering(installed)
	for group := o.ready(); group != nil; group = o.ready() {
		for _, name := range group {
			o.done(name)
		}
	}
	assert.Empty(t, o.left)
	assert.LessOrEqual(t, o.work, 2*apps*each)
}

func BenchmarkDecide(b *testing.B) {
	incoming, installed := many(b, 200, 5)
	b.ReportAllocs()
	for b.Loop() {
		if Decide(Request{Operation: Install, App: incoming, Installed: installed}).Refused != nil {
			b.Fatal("refused")
		}
		Order(installed)
	}
}
