package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
)

// TestRefuseOlder: an older version is refused by name before anything is
// loaded; a person still goes back.
func TestRefuseOlder(t *testing.T) {
	version := func(name, v string) release {
		return release{app: "shop", name: name, images: []string{"web " + name}, version: v}
	}
	for name, c := range map[string]struct {
		installed, next string
		says            string // "" if it gets in
	}{
		"newer":                       {"1.9.0", "1.10.0", ""},
		"the same":                    {"1.9.0", "1.9.0", ""},
		"older":                       {"1.10.0", "1.9.0", "version 1.9.0 of shop is older than the installed 1.10.0"},
		"a candidate of the same":     {"2.0.0", "2.0.0-rc.1", "is older than the installed 2.0.0"},
		"older, as Debian has it":     {"1:1.0-2", "2.0-1", "is older than the installed 1:1.0-2"},
		"newer, as Debian has it":     {"1.0~beta1", "1.0", ""},
		"what cannot be compared":     {"1.0", "blue", `version "blue" of shop cannot be compared with the installed "1.0"`},
		"no version":                  {"1.0", "", `version "" of shop cannot be compared`},
		"after one without a version": {"", "0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.refuseOlder = true
			cl := newClient(g, true)
			require.NoError(t, cl.install(g.newTree(t, version("shop-a", c.installed))))
			require.NoError(t, cl.commit())
			calls := len(g.w.calls)
			tr := g.newTree(t, version("shop-b", c.next))
			if c.says != "" {
				err := g.call(modules.Download, tr)
				require.ErrorIs(t, err, ErrUnfit)
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "\n")
				require.NotContains(t, g.w.calls[calls:], "LOAD shop web:1")
				g.refuseOlder = false
			}
			require.NoError(t, cl.install(g.newTree(t, version("shop-b", c.next))))
			require.NoError(t, cl.commit())
			g.refuseOlder = true
			to, err := g.engine().GoBack(t.Context(), "shop", "")
			require.NoError(t, err)
			require.Equal(t, c.installed, to.Version)
		})
	}
}
