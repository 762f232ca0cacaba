package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file reads calendar expressions as systemd.time(7) defines them, and finds
// the next time that one names. It has no clock. These parts of the definition are refused:
// days counted from the end of a month (~), fractions of seconds, years of two digits, and
// time zones other than UTC.

// The years that an expression may name.
const (
	firstYear = 1970
	lastYear  = 2199
)

// allYears is how many years in a row have each date on each weekday: 29 February comes on a
// weekday every 28 years, and after 40 around 2100, which is not a leap year. What none of them
// has, no year has.
const allYears = 42

// maxParts bounds a list in an expression.
const maxParts = 64

// Calendar is a calendar expression.
type Calendar struct {
	weekdays             [7]bool
	year, month, day     calendarField
	hour, minute, second calendarField
	utc                  bool
}

// calendarField is one number of a date or a time: the values that it may have.
type calendarField []calendarPart

// calendarPart are the values from first to last, each step'th.
type calendarPart struct{ first, last, step int }

func (f calendarField) has(n int) bool {
	return slices.ContainsFunc(f, func(p calendarPart) bool {
		return n >= p.first && n <= p.last && (n-p.first)%p.step == 0
	})
}

// calendarShort are the words that stand for an expression.
var calendarShort = map[string]string{
	"minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00",
	"monthly": "*-*-01 00:00:00", "quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00",
	"yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00",
}

var days = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// ParseCalendar reads an expression.
func ParseCalendar(text string) (c Calendar, err error) {
	words := strings.Fields(strings.ToLower(text))
	if n := len(words); n > 1 && words[n-1] == "utc" {
		c.utc, words = true, words[:n-1]
	}
	if len(words) == 1 && calendarShort[words[0]] != "" {
		words = strings.Fields(strings.ToLower(calendarShort[words[0]]))
	}
	if len(words) > 0 && words[0][0] >= 'a' && words[0][0] <= 'z' {
		if err := c.parseWeekdays(words[0]); err != nil {
			return c, err
		}
		words = words[1:]
	} else {
		c.weekdays = [7]bool{true, true, true, true, true, true, true}
		if len(words) == 0 {
			return c, errors.New("it is empty")
		}
	}
	date, clock := "*-*-*", "00:00:00"
	if len(words) > 0 && strings.Contains(words[0], "-") {
		date, words = words[0], words[1:]
	}
	if len(words) > 0 && strings.Contains(words[0], ":") {
		clock, words = words[0], words[1:]
	}
	if len(words) > 0 {
		return c, fmt.Errorf("%q is not a weekday, date or time, or is out of order", words[0])
	}
	if err := c.parseDate(date); err != nil {
		return c, err
	}
	return c, c.parseTime(clock)
}

func (c *Calendar) parseWeekdays(list string) error {
	for span := range strings.SplitSeq(strings.TrimSuffix(list, ","), ",") {
		first, last, isSpan := strings.Cut(span, "..")
		if !isSpan {
			last = first
		}
		from, to := weekday(first), weekday(last)
		if from < 0 || to < from {
			return fmt.Errorf("%q is not a weekday, nor a span of them within Mon..Sun", span)
		}
		for d := from; d <= to; d++ {
			c.weekdays[d%7] = true
		}
	}
	return nil
}

// weekday returns the number of a day, from 1 for Monday to 7 for Sunday; -1 for no day.
func weekday(name string) int {
	i := slices.IndexFunc(days, func(d string) bool { return name == d || name == d[:3] })
	if i == 0 {
		return 7
	}
	return i
}

func (c *Calendar) parseDate(text string) (err error) {
	parts := strings.Split(text, "-")
	if len(parts) == 2 {
		parts = append([]string{"*"}, parts...)
	}
	if len(parts) != 3 {
		return fmt.Errorf("%q is not a date such as *-*-01", text)
	}
	if c.year, err = parseCalendarField(parts[0], firstYear, lastYear); err != nil {
		return err
	}
	if c.month, err = parseCalendarField(parts[1], 1, 12); err != nil {
		return err
	}
	c.day, err = parseCalendarField(parts[2], 1, 31)
	return err
}

func (c *Calendar) parseTime(text string) (err error) {
	parts := strings.Split(text, ":")
	if len(parts) == 2 {
		parts = append(parts, "00")
	}
	if len(parts) != 3 {
		return fmt.Errorf("%q is not a time such as 03:00", text)
	}
	if c.hour, err = parseCalendarField(parts[0], 0, 23); err != nil {
		return err
	}
	if c.minute, err = parseCalendarField(parts[1], 0, 59); err != nil {
		return err
	}
	c.second, err = parseCalendarField(parts[2], 0, 59)
	return err
}

// parseCalendarField reads "*", numbers, spans and steps between two bounds.
func parseCalendarField(text string, low, high int) (f calendarField, err error) {
	list := strings.Split(text, ",")
	if len(list) > maxParts {
		return nil, fmt.Errorf("%q has more than %d parts", text[:16]+"…", maxParts)
	}
	for _, item := range list {
		p := calendarPart{low, high, 1}
		values, step, stepped := strings.Cut(item, "/")
		if stepped {
			if p.step, err = calendarNumber(step, 1, high); err != nil {
				return nil, err
			}
		}
		first, last, span := strings.Cut(values, "..")
		if values != "*" {
			if p.first, err = calendarNumber(first, low, high); err != nil {
				return nil, err
			}
			switch {
			case span:
				if p.last, err = calendarNumber(last, p.first, high); err != nil {
					return nil, err
				}
			case !stepped:
				p.last = p.first
			}
		}
		f = append(f, p)
	}
	return f, nil
}

func calendarNumber(text string, low, high int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || int(n) < low || int(n) > high {
		return 0, fmt.Errorf("%q is not a number from %d to %d", text, low, high)
	}
	return int(n), nil
}

// Next is the first time after t that the expression names, in the zone of t; the zero
// time if there is none.
func (c Calendar) Next(t time.Time) time.Time {
	zone := t.Location()
	if c.utc {
		t = t.UTC()
	}
	if t.Year() < firstYear {
		t = time.Date(firstYear, 1, 1, 0, 0, 0, -1, t.Location())
	}
	year, inRow := 0, 0
	for day := time.Date(t.Year(), t.Month(), t.Day(), 12, 0, 0, 0, t.Location()); day.Year() <= lastYear; day = day.AddDate(0, 0, 1) {
		if year != day.Year() {
			year = day.Year()
			if inRow++; inRow > allYears {
				return time.Time{}
			}
		}
		switch {
		case !c.year.has(year):
			inRow = 0
			day = time.Date(year, 12, 31, 12, 0, 0, 0, day.Location())
		case !c.month.has(int(day.Month())):
			day = time.Date(year, day.Month()+1, 0, 12, 0, 0, 0, day.Location())
		case c.day.has(day.Day()) && c.weekdays[day.Weekday()]:
			if next := c.within(day, t); !next.IsZero() {
				return next.In(zone)
			}
		}
	}
	return time.Time{}
}

// within is the first time of a day that the expression names and that is after t.
func (c Calendar) within(day, t time.Time) time.Time {
	for h := range 24 {
		// The last second of the hour: when clocks change, an hour may not exist.
		if !c.hour.has(h) || !time.Date(day.Year(), day.Month(), day.Day(), h, 59, 59, 0, day.Location()).After(t) {
			continue
		}
		for m := range 60 {
			if !c.minute.has(m) {
				continue
			}
			for s := range 60 {
				if !c.second.has(s) {
					continue
				}
				if at := onClock(day, h, m, s); at.After(t) {
					return at
				}
			}
		}
	}
	return time.Time{}
}

// onClock is when clocks show a time on a day: the first time if they show it twice, the
// zero time if they skip it. systemd does the same; time.Date depends on the zone.
func onClock(day time.Time, h, m, s int) time.Time {
	at := time.Date(day.Year(), day.Month(), day.Day(), h, m, s, 0, day.Location())
	_, now := at.Zone()
	_, before := at.Add(-4 * time.Hour).Zone() // the zone before any change of that night
	if first := at.Add(time.Duration(now-before) * time.Second); wall(first).Equal(wall(at)) {
		at = first
	}
	if at.Hour() != h || at.Minute() != m {
		return time.Time{}
	}
	return at
}
