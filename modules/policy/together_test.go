package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needs is a policy with a dependency on each name; "db 2" needs one version.
func needs(action, name, version string) string {
	return "[[depends]]\nname = '" + name + "'\nversion = '" + version + "'\naction = '" + action + "'\n"
}

// TestApply: which staged artifacts are installed first, and why none is.
func TestApply(t *testing.T) {
	type app struct{ name, version, policy string }
	shop := func(policy string) app { return app{"shop", "1", policy} }
	for name, c := range map[string]struct {
		incoming  app
		installed []app
		open      string // of the installed ones
		staged    []app  // the newest first
		first     []string
		refused   string
	}{
		"missing": {incoming: shop(needs("apply", "db", "")), staged: []app{{"db", "2", ""}}, first: []string{"db 2"}},
		"another version": {incoming: shop(needs("apply", "db", `2\..*`)), installed: []app{{"db", "1.0", ""}},
			staged: []app{{"db", "3.0", ""}, {"db", "2.1", ""}, {"db", "2.0", ""}}, first: []string{"db 2.1"}},
		"met": {incoming: shop(needs("apply", "db", `2\..*`)), installed: []app{{"db", "2.0", ""}}, staged: []app{{"db", "2.1", ""}}},
		"nothing staged": {incoming: shop(needs("apply", "db", "2")), staged: []app{{"db", "1", ""}, {"web", "2", ""}},
			refused: "depends of shop: db is not installed, and no matching artifact is staged: stage an artifact of it with mender-app stage, or install db in a version that matches 2 first"},
		"error does not install": {incoming: shop(needs("error", "db", "")), staged: []app{{"db", "2", ""}}, refused: "depends of shop: db is not installed: install db first"},
		"an update is open": {incoming: shop(needs("apply", "db", "")), installed: []app{{"db", "1", ""}}, open: "db", staged: []app{{"db", "2", ""}},
			refused: "an update of db is not complete"},
		"in turn": {incoming: shop(needs("apply", "db", "")), staged: []app{{"db", "2", needs("apply", "disk", "")}, {"disk", "1", ""}},
			first: []string{"disk 1", "db 2"}},
		"in turn, and missing": {incoming: shop(needs("apply", "db", "")), staged: []app{{"db", "2", needs("apply", "disk", "")}},
			refused: "depends of db: disk is not installed, and no matching artifact"},
		"two, one for both": {incoming: shop(needs("apply", "db", "") + needs("apply", "web", "")),
			staged: []app{{"db", "2", needs("apply", "disk", "")}, {"disk", "1", ""}, {"web", "1", needs("apply", "disk", "1")}},
			first:  []string{"disk 1", "db 2", "web 1"}},
		"two that want different ones": {incoming: shop(needs("apply", "db", "") + needs("apply", "web", "")),
			staged:  []app{{"db", "2", needs("apply", "disk", "1")}, {"disk", "2", ""}, {"disk", "1", ""}, {"web", "1", needs("apply", "disk", "2")}},
			refused: "depends of web: disk is installed in version 1 first, because another application needs that"},
		"what comes first breaks another need": {incoming: shop(needs("error", "disk", "1") + needs("apply", "db", "")), installed: []app{{"disk", "1", ""}},
			staged:  []app{{"db", "2", needs("apply", "disk", "2")}, {"disk", "2", ""}},
			refused: "depends of shop: disk is installed in version 2"},
		"what comes first meets another need": {incoming: shop(needs("error", "disk", "") + needs("apply", "db", "")),
			staged: []app{{"db", "2", needs("apply", "disk", "")}, {"disk", "2", ""}}, first: []string{"disk 2", "db 2"}},
		"a circle": {incoming: shop(needs("apply", "db", "")), staged: []app{{"db", "2", needs("apply", "disk", "")}, {"disk", "1", needs("apply", "shop", "")}},
			refused: "depends of disk: it depends on itself: shop needs db needs disk needs shop"},
		"a circle of those that come first": {incoming: shop(needs("apply", "db", "")), staged: []app{{"db", "2", needs("apply", "disk", "")}, {"disk", "1", needs("apply", "db", "3")}},
			refused: "db needs disk needs db"},
		"another rule comes before": {incoming: shop(needs("apply", "db", "") + "[orchestrator]\nminimum = '30.0'"), refused: "orchestrator"},
		"others that need it": {incoming: app{"db", "2", ""}, installed: []app{{"db", "1", ""}, {"web", "1", needs("apply", "db", "1")}},
			refused: "depends of web: it needs db in a version that matches 1"},
	} {
		t.Run(name, func(t *testing.T) {
			make := func(a app) App {
				out := App{Name: a.name, Version: a.version}
				if a.policy != "" {
					out.Policy = parse(t, a.name, a.policy)
				}
				if a.name == c.open {
					out.Status = Open
				}
				return out
			}
			r := Request{Operation: Install, Mode: ByHand, App: make(c.incoming)}
			for _, a := range c.installed {
				r.Installed = append(r.Installed, make(a))
			}
			for _, a := range c.staged {
				r.Staged = append(r.Staged, Staged{App: make(a)})
			}
			d := Decide(r)
			if c.refused != "" {
				require.NotNil(t, d.Refused)
				assert.Contains(t, d.Refused.String(), c.refused)
				assert.Empty(t, d.First)
				return
			}
			require.Nil(t, d.Refused, "%v", d.Refused)
			var first, all []string
			for _, s := range d.First {
				first = append(first, s.Name+" "+s.Version)
			}
			assert.Equal(t, c.first, first)
			for _, a := range With(r.Installed, []App{{Name: "db", Version: "9"}, {Name: "shop", Version: "9"}}, "shop") {
				all = append(all, a.Name+" "+a.Version)
			}
			assert.Contains(t, all, "db 9")
			assert.NotContains(t, all, "shop 9", "it is the one that is asked about")
		})
	}
}
