package align

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/delta/internal/script"
)

func TestPrune(t *testing.T) {
	long, far, line, end := script.Match{New: 0, Old: 0, Length: 5000}, script.Match{New: 5010, Old: 90000, Length: 9}, script.Match{New: 5030, Old: 5030, Length: 9}, script.Match{New: 5040, Old: 5040, Length: 4000}
	// A short one that is far away costs two seeks; one that goes on as the
	// alignment did costs next to nothing.
	require.Equal(t, []script.Match{long, end}, prune([]script.Match{long, far, end}))
	require.Equal(t, []script.Match{long, line, end}, prune([]script.Match{long, line, end}))
	// A long one far away stays.
	far.Length = 60
	require.Equal(t, []script.Match{long, far, end}, prune([]script.Match{long, far, end}))
	require.Empty(t, prune(nil))
}
