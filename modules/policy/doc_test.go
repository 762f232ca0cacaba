package policy

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = "../../docs/POLICY.md"

// tableKeys lists the keys in the first column of the n'th table of a section.
func tableKeys(t *testing.T, section string, n int) (keys []string) {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(data), "\n"+section+"\n")
	require.True(t, ok, "no section %q in %s", section, page)
	rest, _, _ = strings.Cut(rest, "\n## ")
	tables := 0
	row := regexp.MustCompile("^\\| `([^`]+)`")
	inside := false
	for line := range strings.Lines(rest) {
		if starts := strings.HasPrefix(line, "|"); starts != inside {
			if inside = starts; inside {
				tables++
			}
		}
		if m := row.FindStringSubmatch(line); m != nil && tables == n {
			keys = append(keys, m[1])
		}
	}
	slices.Sort(keys)
	return keys
}

// TestPageHasEveryKey compares the page with the code, in both directions.
func TestPageHasEveryKey(t *testing.T) {
	assert.Equal(t, Keys(), tableKeys(t, "## Keys", 1))
}

// TestPagesExample: the example of the page is a policy, and has every table.
func TestPagesExample(t *testing.T) {
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(data), "```toml\n")
	require.True(t, ok)
	text, _, _ := strings.Cut(rest, "```")
	p := parse(t, "shop", text)
	assert.NotEmpty(t, p.Upgrades.FromVersions)
	assert.NotEmpty(t, p.Platform.Releases)
	assert.NotEmpty(t, p.Depends)
	assert.NotEmpty(t, p.Exceptions)
	assert.NotEmpty(t, p.Hooks)
}

// TestPageHasEveryHook: the page says when each hook is run.
func TestPageHasEveryHook(t *testing.T) {
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(data), "\n## Hooks\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, name := range HookNames {
		assert.Contains(t, section, "`"+name+"`")
	}
}

// TestPageHasEveryEvent: the page says who raises each event that this program raises.
func TestPageHasEveryEvent(t *testing.T) {
	for _, name := range []string{EventBoot, EventBundles, EventSchedule, EventEngineVersion, EventOSUpdated, EventOverrides} {
		assert.Contains(t, tableKeys(t, "## What the device does by itself", 2), name)
	}
}

// TestPageNamesTheBounds: the numbers of the page are the code's.
func TestPageNamesTheBounds(t *testing.T) {
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(data), fmt.Sprintf("An expression has at most %d bytes and at most about 4000 states", maxExpression))
	assert.Contains(t, string(data), fmt.Sprintf("A policy has at most %d KiB and %d entries in a list", MaxBytes>>10, maxList))
}
