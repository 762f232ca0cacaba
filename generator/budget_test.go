package generator

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/delta/budget"
)

// A budget is kept, with more bytes; one that cannot be kept is refused with one that
// can.
func TestDecodeBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes several images; left out of -short")
	}
	s := newShop(t)
	generate := func(b ...budget.Budget) (m *artifact.Metadata, size int64, err error) {
		o := s.options(t, "extra:1", "web:1,web:2")
		o.Images.Coding = Coded
		o.Images.Budgets = append(b, budget.Budget{Class: "armv7", Time: time.Nanosecond})
		if _, err := Generate(t.Context(), o, false); err != nil {
			return nil, 0, err
		}
		m = read(t, o.Build.Output).meta
		for _, c := range m.Components {
			size += c.PayloadBytes
		}
		return m, size, nil
	}
	needs := func(m *artifact.Metadata) int64 { return decodingOf(m.Sizes, m.Components) }
	free, size, err := generate()
	require.NoError(t, err)
	require.Positive(t, needs(free))

	ample, same, err := generate(budget.Budget{Class: "amd64", Time: time.Hour})
	require.NoError(t, err)
	require.NotEqual(t, free.Made.Inputs, ample.Made.Inputs)
	ample.Made.Inputs = free.Made.Inputs // the budget is one of them
	require.Equal(t, free, ample)
	require.Equal(t, size, same)

	_, _, err = generate(budget.Budget{Time: time.Nanosecond})
	var usage *UsageError
	require.ErrorAs(t, err, &usage)
	require.ErrorContains(t, err, "--decode-budget: decoding takes at least")
	require.ErrorContains(t, err, "on a core of")
	enough, _, found := strings.Cut(strings.TrimPrefix(usage.Hint, "--decode-budget "), " would do; ")
	require.True(t, found, usage.Hint)
	b, err := budget.Parse(enough)
	require.NoError(t, err)
	_, _, err = generate(b)
	require.NoError(t, err)

	tight, larger, err := generate(budget.Budget{Instructions: needs(free) - 1})
	require.NoError(t, err)
	require.Less(t, needs(tight), needs(free))
	require.Greater(t, larger, size)
}

func TestDecodeBudgetOfPlatforms(t *testing.T) {
	s := newShop(t)
	o := s.options(t, "web:1,web:2")
	o.Images.Budgets = []budget.Budget{{Time: time.Hour}, {Class: "amd64", Time: time.Hour}}
	_, err := Generate(t.Context(), o, true)
	require.ErrorContains(t, err, "--decode-budget: two are for linux/amd64")
}
