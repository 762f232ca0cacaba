package delta_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
)

// TestSharesAddUp: what the classes cost is the size of the delta, but for its head
// and for what frames take.
func TestSharesAddUp(t *testing.T) {
	old, new := fuzzPair()
	var d bytes.Buffer
	shares := map[string]float64{}
	rep, err := encoder.Encode(t.Context(), &d, []delta.Image{old}, new, encoder.Options{Shares: shares})
	require.NoError(t, err)
	bits := 0.0
	for class, n := range shares {
		require.Positive(t, n, class)
		bits += n
	}
	coded := int64(0)
	for _, o := range rep.Objects {
		coded += o.Total() - o.Bytes["bulk"]
	}
	require.InEpsilon(t, coded, bits/8, 0.02)

	var again bytes.Buffer
	_, err = encoder.Encode(t.Context(), &again, []delta.Image{old}, new, encoder.Options{})
	require.NoError(t, err)
	require.Equal(t, again.Bytes(), d.Bytes(), "the account changes nothing")
}

// leastShare is the share below which a class has no row of its own, in percent.
const leastShare = 5

// TestShares prints what the deltas of the corpus pairs are made of, as a Markdown
// table:
//
//	MENDER_APP_BENCH=1 go test -run 'TestShares$' -v ./delta
func TestShares(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("MENDER_APP_BENCH is not set")
	}
	var names []string
	percent := map[string][]float64{}
	dirs := corpus(t)
	for i, dir := range dirs {
		old, err := dirImage(dir, "v1")
		require.NoError(t, err)
		new, err := dirImage(dir, "v2")
		require.NoError(t, err)
		shares := map[string]float64{}
		rep, err := encoder.Encode(context.Background(), io.Discard, []delta.Image{old}, new, encoder.Options{Shares: shares})
		require.NoError(t, err)
		for _, o := range rep.Objects {
			shares["literals in bulk"] += 8 * float64(o.Bytes["bulk"])
		}
		names = append(names, filepath.Base(dir))
		for class, bits := range shares {
			if percent[class] == nil {
				percent[class] = make([]float64, len(dirs))
			}
			percent[class][i] = 100 * bits / 8 / float64(rep.Size)
		}
	}
	classes := slices.SortedFunc(maps.Keys(percent), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Max(percent[b]), slices.Max(percent[a])), cmp.Compare(a, b))
	})
	fmt.Print("| class |")
	for _, name := range names {
		fmt.Printf(" %s |", name)
	}
	fmt.Print("\n|---|")
	rest := make([]float64, len(dirs))
	for range names {
		fmt.Print("---|")
	}
	fmt.Println()
	row := func(class string, values []float64) {
		fmt.Printf("| %s |", class)
		for _, v := range values {
			fmt.Printf(" %.1f |", v)
		}
		fmt.Println()
	}
	for _, class := range classes {
		if slices.Max(percent[class]) >= leastShare {
			row(class, percent[class])
			continue
		}
		for i, v := range percent[class] {
			rest[i] += v
		}
	}
	row("all others", rest)
}
