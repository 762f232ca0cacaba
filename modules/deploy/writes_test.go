package deploy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store/durable"
)

// TestWritesAreFew: flash wears. Each of these steps writes to the store and
// waits for the disk; how many a deployment takes must depend neither on what
// is installed nor on how often something was.
func TestWritesAreFew(t *testing.T) {
	const most = 19 // docs/ARM.md says it
	g := newRig(t)
	c := newClient(g, false)
	count := func(work func()) (n int, steps string) {
		seen := map[string]int{}
		defer durable.Inject(func(name string) error {
			// Where a step begins; its end has another word.
			verb, _, _ := strings.Cut(name, ".")
			switch verb {
			case "write", "mkdir", "remove", "move", "link", "sync":
				seen[name]++
				n++
			}
			return nil
		})()
		work()
		return n, fmt.Sprint(seen)
	}
	update := func(r release) func() {
		return func() {
			require.NoError(t, c.install(g.newTree(t, r)))
			require.NoError(t, c.commit())
		}
	}
	first, steps := count(update(v1))
	require.LessOrEqual(t, first, 23, steps)
	var counts []int
	for i := range 8 {
		r := []release{v2, v4}[i%2]
		n, steps := count(update(r))
		require.LessOrEqual(t, n, most, "update %d: %s", i, steps)
		counts = append(counts, n)
	}
	require.Equal(t, counts[2], counts[6], "the same update again costs the same")
	n, steps := count(func() { require.Error(t, c.install(g.newTree(t, v3))) })
	require.LessOrEqual(t, n, most, "failing: %s", steps)
	n, steps = count(func() {
		require.NoError(t, c.install(g.newTree(t, v2)))
		require.NoError(t, c.rollback())
	})
	require.LessOrEqual(t, n, most, "taken back: %s", steps)
	t.Logf("first %d, updates %v, taken back %d: %s", first, counts, n, steps)
}

// TestWithoutClock: a device without a clock of its own begins in 1970, hears
// the time from the network in the middle of things, and loses it again. Order
// and identity come from counters, never from the time.
func TestWithoutClock(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		clock := time.Unix(0, 0)
		g.now = func() time.Time { return clock }
		require.NoError(t, c.install(g.newTree(t, v1)))
		clock = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		require.NoError(t, c.commit())
		g.runs(t, "shop", &v1)
		require.NoError(t, c.install(g.newTree(t, v2)))
		clock = time.Unix(0, 0)
		g.boot++
		require.NoError(t, c.commit())
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")
		require.Error(t, c.install(g.newTree(t, v3)))
		g.runs(t, "shop", &v2)
		require.NoError(t, c.install(g.newTree(t, v4)))
		require.NoError(t, c.rollback())
		g.runs(t, "shop", &v2)
		g.clean(t, "shop")
		require.Equal(t, []string{"shop-1 installed", "shop-2 installed", "shop-3 rolled-back", "shop-4 rolled-back"}, g.history(t, "shop"))
		r, err := g.engine().GoBack(t.Context(), "shop", "")
		require.NoError(t, err)
		require.Equal(t, "shop-1", r.ArtifactName)
		g.runs(t, "shop", &v1)
	})
}
