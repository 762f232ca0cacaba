package delta

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrune(t *testing.T) {
	long, far, line, end := cover{0, 0, 5000}, cover{5010, 90000, 9}, cover{5030, 5030, 9}, cover{5040, 5040, 4000}
	// A short one that is far away costs two seeks; one that goes on as the
	// alignment did costs next to nothing.
	require.Equal(t, []cover{long, end}, prune([]cover{long, far, end}))
	require.Equal(t, []cover{long, line, end}, prune([]cover{long, line, end}))
	// A long one far away stays.
	far.length = 60
	require.Equal(t, []cover{long, far, end}, prune([]cover{long, far, end}))
	require.Empty(t, prune(nil))
}
