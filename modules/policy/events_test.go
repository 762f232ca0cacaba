package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What changed on the device is an event, and what is seen for the first time is none.
func TestChanged(t *testing.T) {
	now := time.Date(2026, 11, 25, 17, 20, 0, 0, time.UTC)
	shop := Present{App: App{Name: "shop", Policy: parse(t, "shop", "managed = true\n[[reapply]]\non = 'schedule'\ncalendar = 'daily'\n[[reapply]]\non = 'os-updated'")}}
	s := Situation{
		Installed: []Present{shop},
		Facts:     []Fact{EngineVersion("docker-compose", "28.5"), OSVersion("4.2"), OverridesOf("shop", "a1")},
	}
	events, seen := Changed(nil, s, now)
	assert.Empty(t, events)
	assert.Equal(t, map[string]string{
		"engine-version docker-compose": "28.5", "os-updated ": "4.2", "overrides shop": "a1", "schedule daily": "2026-11-25T17:20:00Z",
	}, seen)
	events, again := Changed(seen, s, now.Add(time.Hour))
	assert.Empty(t, events)
	assert.Equal(t, seen, again)

	s.Facts = []Fact{EngineVersion("docker-compose", "29.0"), OSVersion(""), OverridesOf("shop", "b2")}
	events, seen = Changed(seen, s, now.Add(48*time.Hour))
	assert.Equal(t, []Event{
		{Name: "engine-version", Fields: map[string]string{"orchestrator": "docker-compose", "version": "29.0", "before": "28.5"}},
		{Name: "overrides", Fields: map[string]string{"application": "shop"}},
		{Name: "schedule", Fields: map[string]string{"calendar": "daily"}},
	}, events, "a version that is not known now is as before, and a time that was missed comes once")
	assert.Equal(t, "4.2", seen["os-updated "])
	events, _ = Changed(seen, s, now.Add(49*time.Hour))
	assert.Empty(t, events)

	// A clock that was set back, and what nobody asks for any more.
	events, seen = Changed(seen, s, now.Add(-24*time.Hour))
	assert.Empty(t, events)
	assert.Equal(t, "2026-11-24T17:20:00Z", seen["schedule daily"])
	_, seen = Changed(seen, Situation{}, now)
	assert.Empty(t, seen)
}

// Only a managed application is told of events.
func TestReapplies(t *testing.T) {
	p := parse(t, "shop", "managed = true\n[[reapply]]\non = 'os-updated'")
	assert.True(t, p.Reapplies("os-updated"))
	assert.False(t, p.Reapplies("boot"))
	assert.False(t, (*Policy)(nil).Reapplies("os-updated"))
}
