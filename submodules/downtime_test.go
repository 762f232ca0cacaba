package submodules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// When no instance of a service was ready. Times are seconds; the watch begins at 10.
func TestGaps(t *testing.T) {
	at := func(s int) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return time.Unix(int64(s), 0).UTC()
	}
	for name, c := range map[string]struct {
		spans  [][2]int
		failed bool
		want   [][2]int // down, up
	}{
		"it goes on":                       {spans: [][2]int{{5, 0}}, want: nil},
		"the first one":                    {spans: [][2]int{{12, 0}}, want: [][2]int{{0, 12}}},
		"one after another":                {spans: [][2]int{{14, 0}, {0, 11}}, want: [][2]int{{11, 14}}},
		"one takes over from another":      {spans: [][2]int{{11, 0}, {0, 14}}, want: nil},
		"at the same time":                 {spans: [][2]int{{14, 0}, {0, 14}}, want: nil},
		"the last of two ends":             {spans: [][2]int{{0, 11}, {0, 13}, {15, 0}}, want: [][2]int{{13, 15}}},
		"a new one covers the last of two": {spans: [][2]int{{0, 11}, {0, 13}, {12, 0}}, want: nil},
		"down twice":                       {spans: [][2]int{{5, 11}, {12, 13}, {15, 0}}, want: [][2]int{{11, 12}, {13, 15}}},
		"a short one within a long one":    {spans: [][2]int{{5, 20}, {11, 12}, {21, 0}}, want: [][2]int{{20, 21}}},
		"none comes":                       {spans: [][2]int{{0, 11}}, want: nil},
		"none comes, and that is a fault":  {spans: [][2]int{{0, 11}}, failed: true, want: [][2]int{{11, 0}}},
		"one is ready in a failed rollout": {spans: [][2]int{{0, 11}, {12, 0}}, failed: true, want: [][2]int{{11, 12}}},
		"none was seen":                    {failed: true, want: nil},
	} {
		var spans []Span
		for _, s := range c.spans {
			spans = append(spans, Span{at(s[0]), at(s[1])})
		}
		var want []Downtime
		for _, w := range c.want {
			want = append(want, Downtime{Service: "web", Down: at(w[0]), Up: at(w[1])})
		}
		require.Equal(t, want, Gaps(map[string][]Span{"web": spans}, at(10), c.failed), name)
	}
	two := Gaps(map[string][]Span{"web": {{at(12), at(0)}}, "db": {{at(13), at(0)}}}, at(10), false)
	require.Equal(t, []Downtime{{Service: "db", Up: at(13)}, {Service: "web", Up: at(12)}}, two)
}
