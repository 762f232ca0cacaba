package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/modules/deploy"
)

// check tells how long the artifact and what it lacks take to arrive, and the decoding.
func TestTimesOfCheck(t *testing.T) {
	class, known := budget.ClassOf(platform)
	f := printedForecast{Download: 1e6, Forecast: &deploy.Forecast{Fetched: 250e3, Sizes: &artifact.Sizes{Decode: 2 * class.Speed}}}
	want := budget.Times{Link: "2 Mbit/s", Download: 5}
	if known {
		want.Class, want.Decode = class.Name, 2
	}
	f.Times = f.times(2e6)
	require.Equal(t, want, *f.Times)
	b, err := json.Marshal(f)
	require.NoError(t, err)
	require.Contains(t, string(b), `"times":{"link":"2 Mbit/s","download_seconds":5`)

	f.Sizes = nil
	require.Equal(t, budget.Times{Link: "2 Mbit/s", Download: 5}, *f.times(2e6))
}
