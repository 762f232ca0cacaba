package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func windows(t *testing.T, texts ...string) Windows {
	t.Helper()
	list, err := ParseWindows(texts)
	require.NoError(t, err)
	return list
}

// Windows at a time: "open" or "closed", and until when. 25 November 2026 is a Wednesday.
func TestWindows(t *testing.T) {
	const night, weekend = "Mon..Fri 02:00-04:00", "Sat,Sun 22:00-06:00"
	for _, c := range []struct {
		list []string
		at   string
		want string
	}{
		{nil, "2026-11-25 12:00:00", "open"},
		{[]string{night}, "2026-11-25 01:59:59", "closed 2026-11-25 02:00:00"},
		{[]string{night}, "2026-11-25 02:00:00", "open 2026-11-25 04:00:00"},
		{[]string{night}, "2026-11-25 03:59:59", "open 2026-11-25 04:00:00"},
		{[]string{night}, "2026-11-25 04:00:00", "closed 2026-11-26 02:00:00"},
		{[]string{night}, "2026-11-27 04:00:00", "closed 2026-11-30 02:00:00"},
		{[]string{night, weekend}, "2026-11-27 04:00:00", "closed 2026-11-28 22:00:00"},
		{[]string{weekend}, "2026-11-29 05:00:00", "open 2026-11-29 06:00:00"},
		{[]string{weekend}, "2026-11-30 05:59:00", "open 2026-11-30 06:00:00"}, // of Sunday
		{[]string{weekend}, "2026-11-28 05:00:00", "closed 2026-11-28 22:00:00"},
		{[]string{night, weekend}, "2026-11-30 01:00:00", "open 2026-11-30 06:00:00"},
		{[]string{"02:00-04:00", "04:00-05:00"}, "2026-11-25 02:30:00", "open 2026-11-25 05:00:00"},
		{[]string{"00:00-24:00"}, "2026-11-25 02:30:00", "open"},
		{[]string{"Wed 00:00-24:00"}, "2026-11-25 23:59:59", "open 2026-11-26 00:00:00"},
		{[]string{"*-*-01 01:00-02:00"}, "2026-11-25 00:00:00", "closed 2026-12-01 01:00:00"},
		{[]string{"2025-01-01 01:00-02:00"}, "2026-11-25 00:00:00", "closed"},
		{[]string{"2025-01-01 01:00-02:00", night}, "2026-11-25 00:00:00", "closed 2026-11-25 02:00:00"},
	} {
		at, err := time.Parse(time.DateTime, c.at)
		require.NoError(t, err)
		open, until := windows(t, c.list...).At(at)
		got := map[bool]string{true: "open", false: "closed"}[open]
		if !until.IsZero() {
			got += " " + until.Format(time.DateTime)
		}
		assert.Equal(t, c.want, got, "%v at %s", c.list, c.at)
	}
}

// A window is read from a clock on the wall, also in the nights in which clocks change, and
// from that of UTC if it says so.
func TestWindowZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones on this machine:", err)
	}
	at := func(text string, list ...string) string {
		when, err := time.ParseInLocation(time.DateTime, text, berlin)
		require.NoError(t, err)
		open, until := windows(t, list...).At(when)
		require.Equal(t, berlin, until.Location())
		return map[bool]string{true: "open ", false: "closed "}[open] + until.Format(time.RFC3339)
	}
	assert.Equal(t, "open 2026-03-29T04:00:00+02:00", at("2026-03-29 01:30:00", "01:00-04:00"), "two hours long")
	assert.Equal(t, "open 2026-10-25T04:00:00+01:00", at("2026-10-25 01:30:00", "01:00-04:00"), "four hours long")
	assert.Equal(t, "closed 2026-03-30T02:30:00+02:00", at("2026-03-29 01:30:00", "02:30-02:45"), "an hour that is not there")
	assert.Equal(t, "open 2026-07-01T04:00:00+02:00", at("2026-07-01 03:00:00", "01:00-02:00 UTC"))
	assert.Equal(t, "closed 2026-07-02T03:00:00+02:00", at("2026-07-01 04:00:00", "01:00-02:00 UTC"))
	assert.Equal(t, "open 2026-07-02T01:00:00+02:00", at("2026-07-02 00:30:00", "Wed 22:00-23:00 UTC"), "Wednesday in UTC")
}

// In a night in which clocks change, a window is open exactly when a clock on the wall shows
// a time in it, east and west of Greenwich, on half hours and at midnight.
func TestWindowWhenClocksChange(t *testing.T) {
	for _, c := range []struct{ zone, day string }{
		{"Europe/Berlin", "2026-03-29"}, {"Europe/Berlin", "2026-10-25"},
		{"America/New_York", "2026-03-08"}, {"America/New_York", "2026-11-01"},
		{"Australia/Lord_Howe", "2026-10-04"}, {"Australia/Lord_Howe", "2026-04-05"}, // half an hour
		{"America/Havana", "2026-03-08"}, {"America/Havana", "2026-11-01"}, // midnight comes not, and the hour before it twice
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Skip("no time zones on this machine:", err)
		}
		day, err := time.ParseInLocation(time.DateOnly, c.day, zone)
		require.NoError(t, err)
		for _, text := range []string{"00:00-00:30", "00:30-01:30", "01:00-02:00", "01:00-02:30", "02:00-03:00", "02:00-04:00", "02:30-02:45", "02:30-03:30", "23:30-02:15", "22:00-21:00", "00:00-24:00"} {
			w := windows(t, text)
			inside := func(at time.Time) bool {
				minute := minutes(at)
				return minute >= w[0].from && minute < w[0].to || minute+dayMinutes < w[0].to
			}
			for at := day.Add(-4 * time.Hour); at.Before(day.Add(9 * time.Hour)); at = at.Add(5 * time.Minute) {
				open, until := w.At(at)
				require.Equal(t, inside(at), open, "%s at %v", text, at)
				if text == "00:00-24:00" {
					require.Zero(t, until, "%v", at)
					continue
				}
				end := at
				for inside(end) == open {
					end = end.Add(5 * time.Minute)
				}
				require.Equal(t, end.Format(time.RFC3339), until.Format(time.RFC3339), "%s at %v", text, at)
			}
		}
	}
	// What clocks skip each time that it comes never opens.
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	open, until := windows(t, "Sun *-03-25..31 02:00-03:00").At(time.Date(2026, 3, 1, 0, 0, 0, 0, berlin))
	assert.False(t, open)
	assert.Zero(t, until)
}

// A release may have many windows, some of which never open, and costs next to nothing.
func TestManyWindows(t *testing.T) {
	var row, never, leap []string
	for i := range maxList {
		at := func(n int) string { return fmt.Sprintf("%02d:%02d", n*24*60/maxList/60%24, n*24*60/maxList%60) }
		row = append(row, at(i)+"-"+at(i+2))
		never = append(never, "Mon *-2,4,6,9,11-31 "+at(i)+"-24:00")
		leap = append(leap, "Mon *-02-29 "+at(i)+"-24:00")
	}
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	var before, after unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &before))
	open, until := windows(t, row...).At(now)
	assert.True(t, open)
	assert.Zero(t, until)
	open, until = windows(t, never...).At(now)
	assert.False(t, open)
	assert.Zero(t, until)
	open, until = windows(t, leap...).At(now)
	assert.False(t, open)
	assert.Equal(t, time.Date(2044, 2, 29, 0, 0, 0, 0, time.UTC), until)
	// Around 2100, which is not a leap year, such a day does not come for 40 years.
	open, until = windows(t, leap[0]).At(time.Date(2072, 3, 1, 0, 0, 0, 0, time.UTC))
	assert.False(t, open)
	assert.Equal(t, time.Date(2112, 2, 29, 0, 0, 0, 0, time.UTC), until)
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &after))
	took := time.Duration(after.Utime.Nano() - before.Utime.Nano())
	t.Log(took)
	assert.Less(t, took, time.Second)
}

func TestNoWindow(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "it is empty",
		"UTC":                         `"UTC" is not a span of time such as 02:00-04:00`,
		"Mon..Fri":                    `"Mon..Fri" is not a span of time such as 02:00-04:00`,
		"Mon..Fri 02:00":              `"02:00" is not a span of time such as 02:00-04:00`,
		"02:00-25:00":                 `"02:00-25:00" is not a span of time such as 02:00-04:00`,
		"24:00-25:00":                 `"24:00-25:00" is not a span of time such as 02:00-04:00`,
		"02:00-02:00":                 `"02:00-02:00" is empty; the whole day is 00:00-24:00`,
		"02:00..04:00":                `"02:00..04:00" is not a span of time such as 02:00-04:00`,
		"Someday 02:00-04:00":         `"someday" is not a weekday, nor a span of them within Mon..Sun`,
		"02:00-04:00 Mon":             `"Mon" is not a span of time such as 02:00-04:00`,
		"Mon 01:00 02:00-04:00":       `"02:00" is not a weekday, date or time, or is out of order`,
		"Mon *-13-* 02:00-04:00":      `"13" is not a number from 1 to 12`,
		"Mon..Fri 02:00-04:00 Berlin": `"Berlin" is not a span of time such as 02:00-04:00`,
	} {
		_, err := ParseWindow(text)
		assert.EqualError(t, err, want, "%q", text)
	}
}

// Whether a release waits: both the device's windows and its own must be open, unless it is
// a signed emergency.
func TestWaits(t *testing.T) {
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	device := windows(t, "02:00-04:00")
	late := &Policy{Upgrades: Upgrades{Windows: []string{"03:00-05:00"}}}
	lunch := &Policy{Upgrades: Upgrades{Windows: []string{"11:00-13:00"}}}
	emergency := &Policy{Upgrades: Upgrades{Emergency: true}}
	for name, c := range map[string]struct {
		device        Windows
		policy        *Policy
		clock, signed bool
		want          Wait
		waits         bool
	}{
		"no windows":                     {clock: true},
		"no windows, no clock":           {},
		"the device's":                   {device: device, clock: true, want: Wait{Whose: "the device", Until: noon.Add(14 * time.Hour)}, waits: true},
		"the release's":                  {policy: late, clock: true, want: Wait{Whose: "the release", Until: noon.Add(15 * time.Hour)}, waits: true},
		"the release's is open":          {policy: lunch, clock: true},
		"only the release's is open":     {device: device, policy: lunch, clock: true, want: Wait{Whose: "the device", Until: noon.Add(14 * time.Hour)}, waits: true},
		"both are closed":                {device: device, policy: late, clock: true, want: Wait{Whose: "the release", Until: noon.Add(15 * time.Hour)}, waits: true},
		"no clock":                       {device: device, want: Wait{Clock: true}, waits: true},
		"no clock, the release's":        {policy: lunch, want: Wait{Clock: true}, waits: true},
		"an emergency":                   {device: device, policy: emergency, clock: true, signed: true},
		"an emergency without a clock":   {device: device, policy: emergency, signed: true},
		"an emergency without signature": {device: device, policy: emergency, clock: true, want: Wait{Whose: "the device", Until: noon.Add(14 * time.Hour)}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, waits := Waits(c.device, c.policy, noon, c.clock, c.signed)
			assert.Equal(t, c.waits, waits)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestWindowsOfPolicies(t *testing.T) {
	p := parse(t, "shop", "[upgrades]\nwindows = [\"Mon..Fri 02:00-04:00\"]\n")
	assert.Len(t, p.Windows(), 1)
	assert.False(t, p.Emergency())
	assert.True(t, parse(t, "shop", "upgrades.emergency = true\n").Emergency())
	assert.Empty(t, (*Policy)(nil).Windows())

	_, err := ParseTOML([]byte("upgrades.windows = [\"02:00\"]\n"), "shop")
	require.ErrorIs(t, err, ErrPolicy)
	require.ErrorContains(t, err, `upgrades.windows[0]: "02:00" is not a span of time`)
	_, err = ParseTOML([]byte("upgrades.windows = [\"02:00-03:00\"]\nupgrades.emergency = true\n"), "shop")
	require.ErrorContains(t, err, "upgrades.emergency: an emergency does not wait for upgrades.windows")
}
