package policy

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Expressions and the times that they name after 2026-11-25 17:20:30, a Wednesday.
var calendarCases = []struct{ text, want string }{
	{"minutely", "2026-11-25 17:21:00"},
	{"hourly", "2026-11-25 18:00:00"},
	{"daily", "2026-11-26 00:00:00"},
	{"weekly", "2026-11-30 00:00:00"},
	{"monthly", "2026-12-01 00:00:00"},
	{"quarterly", "2027-01-01 00:00:00"},
	{"semiannually", "2027-01-01 00:00:00"},
	{"yearly", "2027-01-01 00:00:00"},
	{"03:00", "2026-11-26 03:00:00"},
	{"17:20:31", "2026-11-25 17:20:31"},
	{"17:20:30", "2026-11-26 17:20:30"},
	{"*:0/15", "2026-11-25 17:30:00"},
	{"*:*:0/10", "2026-11-25 17:20:40"},
	{"Mon..Fri 08:30", "2026-11-26 08:30:00"},
	{"Sat,Sun 08:30", "2026-11-28 08:30:00"},
	{"Fri..Sun 1:00", "2026-11-27 01:00:00"},
	{"sunday", "2026-11-29 00:00:00"},
	{"*-*-01", "2026-12-01 00:00:00"},
	{"02-29", "2028-02-29 00:00:00"},
	{"Tue *-2-29 12:00", "2028-02-29 12:00:00"},
	{"2026-11-25 17:20:29", ""},
	{"2026-11-25 17:20:45", "2026-11-25 17:20:45"},
	{"*-1..3,6-1/10 04:00:00", "2027-01-01 04:00:00"},
	{"*-*-* 06..08:30", "2026-11-26 06:30:00"},
	{"*-*-31", "2026-12-31 00:00:00"},
	{"*-02-30", ""},
	{"daily UTC", "2026-11-26 00:00:00"},
}

func TestCalendarNext(t *testing.T) {
	now := time.Date(2026, 11, 25, 17, 20, 30, 0, time.UTC)
	for _, c := range calendarCases {
		e, err := ParseCalendar(c.text)
		require.NoError(t, err, c.text)
		got := ""
		if next := e.Next(now); !next.IsZero() {
			got = next.Format(time.DateTime)
		}
		assert.Equal(t, c.want, got, c.text)
	}
}

// UTC is of the expression; without it the zone of the time counts, over the change to
// summer time too.
func TestZone(t *testing.T) {
	zone := time.FixedZone("east", 2*60*60)
	now := time.Date(2026, 11, 25, 1, 0, 0, 0, zone)
	for text, want := range map[string]string{"23:30": "2026-11-25 23:30:00 +0200", "23:30 UTC": "2026-11-25 01:30:00 +0200"} {
		e, err := ParseCalendar(text)
		require.NoError(t, err)
		assert.Equal(t, want, e.Next(now).Format("2006-01-02 15:04:05 -0700"), text)
	}
}

// changeCases are nights in which clocks change, in zones on both sides of Greenwich.
var changeCases = []struct {
	zone, after, text string
	want              []string
}{
	{"Europe/Berlin", "2026-03-28 12:00", "02:30", []string{"2026-03-30 02:30:00 CEST", "2026-03-31 02:30:00 CEST"}},
	{"Europe/Berlin", "2026-03-29 00:30", "hourly", []string{"2026-03-29 01:00:00 CET", "2026-03-29 03:00:00 CEST", "2026-03-29 04:00:00 CEST"}},
	{"Europe/Berlin", "2026-10-24 12:00", "02:30", []string{"2026-10-25 02:30:00 CEST", "2026-10-26 02:30:00 CET"}},
	{"America/New_York", "2026-03-07 12:00", "02:30", []string{"2026-03-09 02:30:00 EDT", "2026-03-10 02:30:00 EDT"}},
	{"America/New_York", "2026-03-07 12:00", "*-03-08 02,03:15:20", []string{"2026-03-08 03:15:20 EDT", "2027-03-08 02:15:20 EST"}},
	{"America/New_York", "2026-10-31 12:00", "01:30", []string{"2026-11-01 01:30:00 EDT", "2026-11-02 01:30:00 EST"}},
	{"Australia/Lord_Howe", "2026-10-03 12:00", "02:15", []string{"2026-10-05 02:15:00 +11"}}, // skips half an hour
	{"America/Santiago", "2026-09-05 12:00", "daily", []string{"2026-09-07 00:00:00 -03"}},    // skips midnight
}

// A time that clocks skip does not come; one that they repeat comes once.
func TestClocksChange(t *testing.T) {
	for _, c := range changeCases {
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		e, err := ParseCalendar(c.text)
		require.NoError(t, err)
		at, err := time.ParseInLocation("2006-01-02 15:04", c.after, zone)
		require.NoError(t, err)
		for _, want := range c.want {
			at = e.Next(at)
			assert.Equal(t, want, at.Format("2006-01-02 15:04:05 MST"), "%s in %s", c.text, c.zone)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, text := range []string{
		"", "UTC", "never", "25:00", "12:60", "*-13-01", "*-*-32", "*-*~1", "12:00:00.5", "26-01-01", "1969-01-01", "Mon Tue", "Fri..Mon",
		"*:0/0", "8..6:00", "12:00 Mon", "*", "1-2-3-4", "1:2:3:4", "Mon..Fry", "12:00 Europe/Berlin", "*:" + strings.Repeat("1,", 100) + "1", "-1-1 +1:00",
	} {
		_, err := ParseCalendar(text)
		assert.Error(t, err, text)
	}
}

// systemd reads the same expressions, and finds the same times.
func TestAsSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	for _, c := range calendarCases {
		cmd := exec.Command(analyze, "calendar", "--base-time=2026-11-25 17:20:30 UTC", c.text)
		cmd.Env = []string{"TZ=UTC", "LANG=C.UTF-8"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", c.text, out)
		want := c.want
		if want == "" {
			want = "never"
		}
		assert.Regexp(t, `Next elapse: (\w{3} )?`+want, string(out), c.text)
	}
	for _, c := range changeCases {
		cmd := exec.Command(analyze, "calendar", "--base-time="+c.after, "--iterations="+strconv.Itoa(len(c.want)), c.text)
		cmd.Env = []string{"TZ=" + c.zone, "LANG=C.UTF-8"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", c.text, out)
		for _, want := range c.want {
			assert.Contains(t, string(out), want, "%s in %s", c.text, c.zone)
		}
	}
}
