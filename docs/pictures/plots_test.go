package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const results = `pair,kind,architecture,tool,version,delta bytes,encode CPU s,encode peak RSS KiB,decode CPU s,decode peak RSS KiB,note
go,patch release,linux/arm/v7,bsdiff,4.3,40960,4.00,40960,0.20,20480,
go,patch release,linux/arm/v7,mender-app,1,10240,1.00,81920,0.20,20480,
go,patch release,linux/arm/v7,<other>,2,,,,,,encode: exit status 1
moved,moved,linux/arm64,bsdiff,4.3,409600,4.00,40960,0.00,20480,
moved,moved,linux/arm64,mender-app,1,409600,1.00,40960,0.04,20480,
`

// What is drawn is in the file: a row of a tool that failed has no mark, and the means
// are over the pairs that both tools have.
func TestPlots(t *testing.T) {
	rows, err := readRows(strings.NewReader(results))
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, []string{project, "bsdiff"}, distinct(rows, func(r row) string { return r.tool }))

	mean, pairs := ratio(rows, "bsdiff", 0)
	require.Equal(t, 2, pairs)
	require.InDelta(t, 0.5, mean, 1e-9) // of 0.25 and 1
	mean, _ = ratio(rows, "bsdiff", 3)
	require.InDelta(t, 2, mean, 1e-9) // of 1, and of 0.04 by the least that is told apart
	_, pairs = ratio(rows, "xdelta3", 0)
	require.Zero(t, pairs)

	drawn, err := plots(rows)
	require.NoError(t, err)
	picture := string(drawn)
	require.Contains(t, picture, "0.50 × bsdiff")
	require.NotContains(t, picture, "other")
	require.NotContains(t, picture, "url(http")
	require.Equal(t, 5*2+1, strings.Count(picture, "fill:#0072B2"), "ours: a mark in each row, and in the legend")
}

func TestReadRowsRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":     "",
		"no row":    strings.SplitAfter(results, "\n")[0],
		"no column": "pair,tool\na,b\n",
		"no figure": strings.Replace(results, "40960,4.00", "?,4.00", 1),
		"ragged":    results + "a,b\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readRows(strings.NewReader(text))
			require.Error(t, err)
		})
	}
}
