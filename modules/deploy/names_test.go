package deploy

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// Releases of which one image has several names.
var (
	n1 = release{app: "shop", name: "shop-1", images: []string{"web one", "side same"}, also: []string{"worker web one"}}
	n2 = release{app: "shop", name: "shop-2", images: []string{"web one", "side two"}}
	n3 = release{app: "shop", name: "shop-3", images: []string{"side two", "web one"}, also: []string{"cron web one", "worker side two"}}
	n4 = release{app: "shop", name: "shop-4", images: []string{"web four"}, also: []string{"worker web four", "side web four"}}
)

// Names come and go over the releases; what is needed by another one stays,
// and in the end nothing is left.
func TestSeveralNames(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		for _, r := range []release{n1, n2, n3, n1, n4, n2, n4} {
			require.NoError(t, c.install(g.newTree(t, r)))
			g.runs(t, "shop", &r)
			require.NoError(t, c.commit())
			g.runs(t, "shop", &r)
			g.clean(t, "shop")
			for _, m := range r.meta().Components {
				require.Equal(t, m.Digest, g.w.tags[m.URL])
			}
		}
		require.NotContains(t, g.w.tags, "cron:1")

		bad := n3
		bad.name, bad.sick = "shop-9", true
		require.Error(t, c.install(g.newTree(t, bad)))
		g.runs(t, "shop", &n4)
		g.clean(t, "shop")
		require.NotContains(t, g.w.tags, "cron:1")
		require.Equal(t, n4.digests(), strings.Repeat(" "+g.w.tags["worker:1"].String(), 3)[1:], "rolled back under each name")

		require.NoError(t, c.install(g.newTree(t, n1)))
		require.NoError(t, c.rollback())
		g.runs(t, "shop", &n4)
		g.clean(t, "shop")
	})
}

// namesModule records how each component is loaded.
type namesModule struct {
	*world
	loads []string // URL, and the content where there was one
}

func (m *namesModule) Load(_ context.Context, r submodules.LoadRequest) error {
	in := r.Stdin
	if r.Path != "-" {
		f, err := os.Open(r.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(in)
	m.loads = append(m.loads, strings.TrimSpace(r.URL+" "+filepath.Base(r.Path)+" "+string(data)))
	return err
}

// The content crosses once; the further names are asked for with nothing to
// read. A sub-module that does not know identities gets it for each name.
func TestSeveralNamesAreLoaded(t *testing.T) {
	all := newWorld().features
	for name, c := range map[string]struct {
		features []string
		want     []string
	}{
		"ours": {all, []string{"side:1 - image side two", "worker:1 null", "web:1 - image web one", "cron:1 null"}},
		"no identities": {[]string{submodules.FeatureStream}, []string{
			"side:1 image image side two", "worker:1 image image side two", "web:1 image image web one", "cron:1 image image web one"}},
		"no stream": {[]string{submodules.FeatureComponents}, []string{
			"side:1 image image side two", "worker:1 null", "web:1 image image web one", "cron:1 null"}},
		"protocol 1.0": {nil, []string{
			"side:1 image image side two", "worker:1 image image side two", "web:1 image image web one", "cron:1 image image web one"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.w.features = c.features
			m := &namesModule{world: g.w}
			e := g.engine()
			e.Find = func(string) (submodules.Client, error) { return play(m), nil }
			tr := g.newTree(t, n3)
			require.NoError(t, e.download(t.Context(), tr.Tree, tr.streams()))
			require.Equal(t, c.want, m.loads)
			left, err := filepath.Glob(filepath.Join(e.Store.Meta("tmp"), "*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
