package memory

import (
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimits(t *testing.T) {
	const most, least = 20 << 20, 8 << 20
	for _, c := range []struct {
		available, limit int64
		percent          int
	}{
		{math.MaxInt64, most, 100}, // not known
		{1 << 30, most, 100},
		{80 << 20, most, 100},
		{60 << 20, 15 << 20, 50},
		{10 << 20, least, 50},
		{0, least, 50},
	} {
		limit, percent := limits(c.available, most, least)
		require.Equal(t, c.limit, limit, "%d available", c.available)
		require.Equal(t, c.percent, percent, "%d available", c.available)
	}
	limit, _ := limits(0, 1<<20, least)
	require.EqualValues(t, 1<<20, limit, "never more than was asked for")
	limit, percent := limits(10<<20, most, most)
	require.EqualValues(t, most, limit, "a program that needs all of it")
	require.Equal(t, 50, percent)
}

func TestFree(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:  238552 kB\nMemFree: 6004 kB\nMemAvailable:     177612 kB\n": 177612 << 10,
		"MemAvailable: 0 kB\n":                   0,
		"":                                       math.MaxInt64,
		"MemTotal: 1 kB\n":                       math.MaxInt64, // before Linux 3.14
		"MemAvailable: -1 kB\n":                  math.MaxInt64,
		"MemAvailable: 9223372036854775807 kB\n": math.MaxInt64,
		"MemAvailable: 99999999999999999999 kB\n": math.MaxInt64,
		"MemAvailable: 1\n":                       math.MaxInt64,
		"MemAvailable: " + strings.Repeat("1", 1<<20) + " kB\nMemAvailable: 1 kB": math.MaxInt64,
	} {
		require.Equal(t, want, free(strings.NewReader(text)), "%.60q", text)
	}
}

func TestFit(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer func() { debug.SetMemoryLimit(limit); debug.SetGCPercent(percent) }()

	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("GOGC", "")
	Fit(9<<20, 8<<20)
	require.LessOrEqual(t, debug.SetMemoryLimit(-1), int64(9<<20))

	t.Setenv("GOMEMLIMIT", "7MiB") // the runtime has read it when the program started
	Fit(5<<20, 5<<20)
	require.Greater(t, debug.SetMemoryLimit(-1), int64(5<<20), "what the environment says comes first")
}
