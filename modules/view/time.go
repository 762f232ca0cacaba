package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseTime reads a time as people write it: a date, a time, or how long ago it was.
func ParseTime(text string) (time.Time, error) {
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.UTC); err == nil {
			return t, nil
		}
	}
	ago := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n < 100_000 {
			ago = strconv.Itoa(24*n) + "h"
		}
	}
	if d, err := time.ParseDuration(ago); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%s is not a date (2026-11-24), a time (2026-11-24T07:00:00Z) or a length (36h, 7d)", text)
}
