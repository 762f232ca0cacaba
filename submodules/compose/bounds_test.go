package compose

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryFor(t *testing.T) {
	require.EqualValues(t, 256<<20, memoryFor(240<<20))
	require.EqualValues(t, 512<<20, memoryFor(1<<30))
	require.EqualValues(t, 1<<30, memoryFor(64<<30))
}
