package powercut

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Parts of what one returns.
const (
	restarted = "the engine restarted for a held port"
	refused   = "refused once before the next installation"
)

// tally counts cuts.
type tally struct {
	mu         sync.Mutex
	total      int
	violations []string
	by         map[string]int
}

func (c *tally) add(p plan, what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.total++
	where := "in the middle"
	if strings.HasPrefix(what, "after") {
		where = "right after success"
	}
	keys := []string{where, "under " + p.client(), "keeping " + p.mode, p.name, "then " + p.way}
	for _, key := range []string{restarted, refused} {
		if strings.Contains(what, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		c.by[key]++
	}
	if err != nil {
		c.violations = append(c.violations, p.String())
	}
}

func (c *tally) String() string {
	var parts []string
	for key, n := range c.by {
		parts = append(parts, fmt.Sprintf("%d %s", n, key))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d cuts, %d violations %s (%s)", c.total, len(c.violations), strings.Join(c.violations, "; "), strings.Join(parts, ", "))
}
