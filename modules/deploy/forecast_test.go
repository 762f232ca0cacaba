package deploy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// The time is that of what is most like the installation.
func TestTime(t *testing.T) {
	s := store.At(t.TempDir())
	require.NoError(t, s.Prepare())
	start := time.Date(2026, 11, 24, 7, 13, 39, 0, time.UTC)
	add := func(from, status string, received int64, seconds int) {
		t.Helper()
		start = start.Add(time.Hour)
		r := store.Record{ID: start.String(), Application: "shop", From: from, Status: status, Started: start, Ended: start.Add(time.Hour), Measured: &store.Measured{Received: received}}
		if seconds != 0 {
			r.Steps = []store.Step{{Phase: journal.Installed, At: start.Add(time.Duration(seconds) * time.Second)}}
		}
		require.NoError(t, s.AddHistory(r))
	}
	of := func(bytes int64) Forecast {
		f := Forecast{Application: "shop", Sizes: &artifact.Sizes{ImagesPayload: bytes}}
		f.Time(s)
		return f
	}
	require.Zero(t, of(1000).Basis)
	add("", store.StatusInstalled, 1000, 50)
	require.InDelta(t, 50, of(1000).Seconds, 0)

	a, err := s.Create("shop")
	require.NoError(t, err)
	a.Current = "1-shop"
	require.NoError(t, a.Save())
	require.InDelta(t, 50, of(1000).Seconds, 0, "of another kind, for want of a better one")
	add("1", store.StatusInstalled, 40, 20)
	require.InDelta(t, 20, of(1000).Seconds, 0, "of another size")
	add("1", store.StatusRolledBack, 900, 30)
	add("1", store.StatusRolledBack, 900, 0)
	add("1", store.StatusRefused, 900, 0)
	add("1", store.StatusRestored, 900, 3)
	add("1", store.StatusInstalled, 900, -7)
	require.Equal(t, Forecast{Application: "shop", Sizes: &artifact.Sizes{ImagesPayload: 1000}, Seconds: 30, Basis: 1}, of(1000))
	require.InDelta(t, 20, of(41).Seconds, 0)
	for _, seconds := range []int{31, 99, 33, 34, 35} {
		add("1", store.StatusInstalled, 1100, seconds)
	}
	require.InDelta(t, 34, of(1000).Seconds, 0, "the median of the newest five")
	require.Equal(t, 5, of(1000).Basis)
}
