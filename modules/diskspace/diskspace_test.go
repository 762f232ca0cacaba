package diskspace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	// Two file systems: one of 100 MB free, one of 1 GB.
	free := func(dir string) (int64, uint64, error) {
		if strings.HasPrefix(dir, "/big") {
			return 1_000_000_000, 2, nil
		}
		return 100_000_000, 1, nil
	}
	require.NoError(t, Check([]Need{{"/small/store", 50_000_000}, {"/big/docker", 900_000_000}}, free))
	err := Check([]Need{{"/small/store", 50_000_000}, {"/small/docker", 50_000_000}}, free)
	require.Error(t, err, "what lies on one file system adds up")
	require.ErrorContains(t, err, "121.8 MB are needed and 100.0 MB are free")
	require.Error(t, Check([]Need{{"/big", 1<<63 - 1}}, free), "no overflow")
	require.Error(t, Check([]Need{{"/big", -1}}, free))
	require.Error(t, Check([]Need{{"/big", 1<<63 - 1}, {"/big", 1<<63 - 1}}, free), "no overflow")
}

// What may be written is what Check allows, and all of it.
func TestRoom(t *testing.T) {
	free := func(n int64) func(string) (int64, uint64, error) {
		return func(string) (int64, uint64, error) { return n, 1, nil }
	}
	for _, n := range []int64{0, 1, marginBytes, marginBytes + 1, marginBytes + 21, 1 << 30, 1<<50 + 12345} {
		room, err := Room("/x", free(n))
		require.NoError(t, err)
		require.Positive(t, room, "0 would be no bound")
		if n > marginBytes+1 {
			require.NoError(t, Check([]Need{{"/x", room}}, free(n)), "what preflight allows")
			require.Error(t, Check([]Need{{"/x", room + 2}}, free(n)), "and all of it")
		}
	}
}
