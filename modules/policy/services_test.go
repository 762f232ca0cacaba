package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSwitchedOff(t *testing.T) {
	on, off := Choice{Enabled: true, Release: "1-shop"}, Choice{Release: "1-shop"}
	const shipped, forgets = "services = {disabled = ['stats', 'debug']}", "\nkeep = {services = false}"
	for _, c := range []struct {
		name, policy, release string
		choices               map[string]Choice
		off                   []string
	}{
		{"nothing", "", "1-shop", nil, nil},
		{"as shipped", shipped, "1-shop", nil, []string{"debug", "stats"}},
		{"switched on", shipped, "2-shop", map[string]Choice{"stats": on}, []string{"debug"}},
		{"switched off", "", "2-shop", map[string]Choice{"web": off}, []string{"web"}},
		{"off twice", shipped, "1-shop", map[string]Choice{"stats": off}, []string{"debug", "stats"}},
		{"on where it is not off", "", "1-shop", map[string]Choice{"web": on}, nil},
		{"forgotten", shipped + forgets, "2-shop", map[string]Choice{"stats": on, "web": off}, []string{"debug", "stats"}},
		{"not forgotten on the same release", shipped + forgets, "1-shop", map[string]Choice{"stats": on, "web": off}, []string{"debug", "web"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parse(t, "shop", c.policy)
			got := p.SwitchedOff(c.release, p.KeepsServices(nil), c.choices)
			assert.ElementsMatch(t, c.off, got)
			assert.IsNonDecreasing(t, append([]string{""}, got...))
		})
	}
	assert.Equal(t, []string{"web"}, (*Policy)(nil).SwitchedOff("1-shop", true, map[string]Choice{"web": off}))
}

func TestKeeps(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		policy string
		said   *bool
		keeps  bool
	}{
		{"", nil, true},
		{"", &no, false},
		{"keep = {services = false, overrides = false}", nil, false},
		{"keep = {services = false, overrides = false}", &yes, true},
		{"keep = {services = true, overrides = true}", &no, false},
	} {
		p := parse(t, "shop", c.policy)
		assert.Equal(t, c.keeps, p.KeepsServices(c.said), c.policy)
		assert.Equal(t, c.keeps, p.KeepsOverrides(c.said), c.policy)
	}
	assert.False(t, (*Policy)(nil).KeepsOverrides(&no))
	assert.True(t, (*Policy)(nil).KeepsServices(nil))
}
