package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocument: docs/FLEET.md has what the simulation says.
func TestDocument(t *testing.T) {
	require.NoError(t, run("../..", "docs/FLEET.md", true))
}

// TestFleet: the devices are as docs/FLEET.md says, and the ways are in the order that they
// should be.
func TestFleet(t *testing.T) {
	images, err := readImages("../..")
	require.NoError(t, err)
	list := fleet()
	months := 0.0
	for _, d := range list {
		if d.back == 0 {
			d.back = bases + 4 // about
		}
		months += (float64(d.back) - 0.5) * every
	}
	require.InDelta(t, ageMonths, months/devices, 0.3)
	all, err := ways(images)
	require.NoError(t, err)
	sent := map[string]result{}
	for _, w := range all {
		sent[w.name] = roll(w, list, 0.1)
	}
	require.Less(t, sent["by reference"].bytes, sent["layers alone"].bytes)
	require.Less(t, sent["layers alone"].bytes, sent["whole images"].bytes)
	require.Less(t, sent["by reference, with site mirrors"].bytes, sent["by reference"].bytes)
	require.Greater(t, sent["by reference"].requests, sent["by reference, with site mirrors"].requests)
}
