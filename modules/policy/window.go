package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a recurring time in which updates may be installed: a calendar expression
// whose time is a span, such as "Mon..Fri 02:00-04:00" or "*-*-01 22:00-06:00 UTC". It
// begins on the days that the expression names. A span whose end is not after its
// beginning ends on the next day. It is open whenever a clock on the wall shows a time in it:
// an hour that clocks skip does not come, and one that they repeat comes twice.
type Window struct {
	begins Calendar
	from   int // minutes of the day
	to     int // minutes of the day on which it began; more than a day's for the next day
}

const dayMinutes = 24 * 60

// ParseWindow reads a window.
func ParseWindow(text string) (w Window, err error) {
	words := strings.Fields(text)
	zone := ""
	if n := len(words); n > 1 && strings.EqualFold(words[n-1], "UTC") {
		zone, words = " UTC", words[:n-1]
	}
	if len(words) == 0 {
		return w, errors.New("it is empty")
	}
	span := words[len(words)-1]
	first, last, ok := strings.Cut(span, "-")
	from, errFrom := time.Parse("15:04", first)
	to, errTo := time.Parse("15:04", last)
	w.from, w.to = minutes(from), minutes(to)
	if last == "24:00" {
		w.to, errTo = dayMinutes, nil
	}
	switch {
	case !ok || errFrom != nil || errTo != nil:
		return w, fmt.Errorf("%q is not a span of time such as 02:00-04:00", span)
	case w.from == w.to:
		return w, fmt.Errorf("%q is empty; the whole day is 00:00-24:00", span)
	case w.to < w.from:
		w.to += dayMinutes
	}
	w.begins, err = ParseCalendar(strings.Join(words[:len(words)-1], " ") + " " + first + zone)
	return w, err
}

func minutes(t time.Time) int { return t.Hour()*60 + t.Minute() }

// zone is the zone of a window's clock, which is that of the device or UTC.
func (w Window) zone(device *time.Location) *time.Location {
	if w.begins.utc {
		return time.UTC
	}
	return device
}

// wall is what a clock on the wall shows at t, as if it were in UTC, where clocks never
// change.
func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// zoneDay is more than any zone differs from UTC.
const zoneDay = 24 * time.Hour

// opens are the times, in their order, at which a clock on the wall shows a time from that
// at which a window begins to that at which it ends. In a night in which clocks change they
// may be two, or none.
func (w Window) opens(begin time.Time, device *time.Location) (list []span) {
	zone, end := w.zone(device), begin.Add(time.Duration(w.to-w.from)*time.Minute)
	for at := begin.Add(-zoneDay).In(zone); ; {
		_, seconds := at.Zone()
		_, change := at.ZoneBounds()
		offset := time.Duration(seconds) * time.Second
		s := span{begin.Add(-offset).In(device), end.Add(-offset).In(device)}
		if s.begin.Before(at) {
			s.begin = at.In(device)
		}
		if !change.IsZero() && s.end.After(change) {
			s.end = change.In(device)
		}
		if s.end.After(s.begin) {
			list = append(list, s)
		}
		if change.IsZero() || change.After(end.Add(zoneDay)) {
			return list
		}
		at = change
	}
}

// next is when the window opens first after t; the zero time if it does not.
func (w Window) next(t time.Time) time.Time {
	begin := wall(t.In(w.zone(t.Location()))).Add(-zoneDay)
	// Clocks may skip the whole window, but not every time that it comes.
	for range allYears {
		if begin = w.begins.Next(begin); begin.IsZero() {
			return begin
		}
		for _, s := range w.opens(begin, t.Location()) {
			if s.begin.After(t) {
				return s.begin
			}
		}
	}
	return time.Time{}
}

// Windows are the times in which updates may be installed. None: they always may.
type Windows []Window

// ParseWindows reads windows; at most maxList of them.
func ParseWindows(texts []string) (list Windows, err error) {
	if len(texts) > maxList {
		return nil, fmt.Errorf("%d windows, the maximum is %d", len(texts), maxList)
	}
	for _, text := range texts {
		w, err := ParseWindow(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		list = append(list, w)
	}
	return list, nil
}

// horizon is how far an end or a beginning is looked for.
const horizon = 8 * 24 * time.Hour

// At reports whether updates may be installed at t, in the zone of t, and until when that
// is so. The time is zero if there is no end: nothing opens again, or nothing closes
// within a week.
func (w Windows) At(t time.Time) (open bool, until time.Time) {
	if len(w) == 0 {
		return true, time.Time{}
	}
	end := t
	for _, s := range w.spans(t) {
		if s.begin.After(end) || end.Sub(t) >= horizon {
			break
		}
		if s.end.After(end) {
			end = s.end
		}
	}
	if !end.After(t) {
		for _, one := range w {
			if next := one.next(t); until.IsZero() || !next.IsZero() && next.Before(until) {
				until = next
			}
		}
		return false, until
	}
	if end.Sub(t) >= horizon {
		return true, time.Time{}
	}
	return true, end
}

type span struct{ begin, end time.Time }

// spans are the times of the windows that may contain t or follow it within the horizon,
// in the order of their beginnings. A window has less than two days and begins once a day,
// so there are few, whatever the windows of a release say.
func (w Windows) spans(t time.Time) (list []span) {
	for _, one := range w {
		now := wall(t.In(one.zone(t.Location())))
		for begin := one.begins.Next(now.Add(-48*time.Hour - zoneDay)); !begin.IsZero() && begin.Before(now.Add(horizon+zoneDay)); begin = one.begins.Next(begin) {
			list = append(list, one.opens(begin, t.Location())...)
		}
	}
	slices.SortFunc(list, func(a, b span) int { return a.begin.Compare(b.begin) })
	return list
}

// Windows returns the windows of the release; none without a policy.
func (p *Policy) Windows() Windows {
	if p == nil {
		return nil
	}
	list, _ := ParseWindows(p.Upgrades.Windows) // check has read them
	return list
}

// Emergency reports whether the release does not wait for windows.
func (p *Policy) Emergency() bool { return p != nil && p.Upgrades.Emergency }

func (p *Policy) checkWindows() error {
	if p.Upgrades.Emergency && len(p.Upgrades.Windows) > 0 {
		return bad("upgrades.emergency", "an emergency does not wait for upgrades.windows: write one of them")
	}
	for i, text := range p.Upgrades.Windows {
		if _, err := ParseWindow(text); err != nil {
			return bad(fmt.Sprintf("upgrades.windows[%d]", i), "%v", err)
		}
	}
	return checkLength("upgrades.windows", len(p.Upgrades.Windows))
}

// Wait says why a release has to wait for a maintenance window; the zero value if it
// need not.
type Wait struct {
	Whose string    // "the device" or "the release"
	Until time.Time // when the window opens; zero if nobody knows
	Clock bool      // the machine does not know what time it is
}

// Waits reports whether a release has to wait at a time, in the zone of the device.
// device are the windows of the device. clock says that the machine knows the time.
// signed says that the policy is signed: without a signature an emergency does not count.
func Waits(device Windows, p *Policy, t time.Time, clock, signed bool) (w Wait, waits bool) {
	own := p.Windows()
	switch {
	case p.Emergency() && signed, len(device)+len(own) == 0:
		return w, false
	case !clock:
		w.Clock = true
		return w, true
	}
	for _, of := range []struct {
		whose string
		list  Windows
	}{{"the device", device}, {"the release", own}} {
		open, until := of.list.At(t)
		if open {
			continue
		}
		// Both must be open. The later opening is what is waited for; it may not be the end.
		if !waits || until.IsZero() || !w.Until.IsZero() && until.After(w.Until) {
			w = Wait{Whose: of.whose, Until: until}
		}
		waits = true
	}
	return w, waits
}
