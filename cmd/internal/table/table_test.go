package table

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestLayOut(t *testing.T) {
	rows := [][]string{
		{"ENDED", "ARTIFACT", "STATUS", "ERROR"},
		{"2026-01-02 03:04:05", "shop-2026.1-candidate-17", "rolled-back", "service web is unhealthy: its check failed 3 times"},
		{"2026-01-02 03:04:05", "shop-1", "installed", "-"},
	}
	require.Equal(t, strings.Join([]string{
		"ENDED                ARTIFACT                  STATUS       ERROR",
		"2026-01-02 03:04:05  shop-2026.1-candidate-17  rolled-back  service web is unhealthy: its check failed 3 times",
		"2026-01-02 03:04:05  shop-1                    installed    -",
		"",
	}, "\n"), LayOut(rows, 0))
	require.Equal(t, LayOut(rows, 0), LayOut(rows, 110), "it fits")
	require.Equal(t, strings.Join([]string{
		"ENDED                ARTIFACT              STATUS       ERROR",
		"2026-01-02 03:04:05  shop-2026.1-          rolled-back  service web is",
		"                     candidate-17                       unhealthy: its check",
		"                                                        failed 3 times",
		"2026-01-02 03:04:05  shop-1                installed    -",
		"",
	}, "\n"), LayOut(rows, 76))
	require.Equal(t, LayOut(rows, 0), LayOut(rows, 20), "no room for columns")

	// Whatever the width, lines fit and no character is lost.
	letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
	for limit := 4*minColumn + 3*columnGap; limit < 130; limit++ {
		got := LayOut(rows[1:2], limit)
		for line := range strings.Lines(got) {
			require.LessOrEqual(t, utf8.RuneCountInString(line)-1, limit)
		}
		require.Len(t, letters(got), len(letters(LayOut(rows[1:2], 0))))
	}
	require.Equal(t, []string{"größte", "Länge"}, wrap("größte Länge", 8))
	require.Equal(t, []string{"sha256:", "01234567", "89"}, wrap("sha256:0123456789", 8))
	require.Equal(t, []string{"  sha256:", "01234567"}, wrap("  sha256:01234567", 10))
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 9999: "9999 B", 10_000: "10 kB", 9_999_499: "9999 kB", 10_000_000: "10 MB", 1_234_567_890: "1235 MB"} {
		require.Equal(t, want, Bytes(n))
	}
}
