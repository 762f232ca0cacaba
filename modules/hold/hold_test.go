package hold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestOver: in the boot in which a hold was taken its time is that of the machine's
// uptime, whatever happens to the clock; in a later one it is the clock's, if that is
// not before the beginning.
func TestOver(t *testing.T) {
	h := &store.Hold{Since: noon, Seconds: 3600, BootID: "a", Uptime: 100}
	for _, c := range []struct {
		now    time.Time
		boot   string
		uptime time.Duration
		over   bool
	}{
		{noon, "a", 100 * time.Second, false},
		{noon.AddDate(10, 0, 0), "a", 3699 * time.Second, false},
		{noon.AddDate(-10, 0, 0), "a", 3700 * time.Second, true},
		{noon.Add(time.Hour - 1), "b", 0, false},
		{noon.Add(time.Hour), "b", 0, true},
		{noon.AddDate(-50, 0, 0), "b", 10 * time.Hour, false},
	} {
		require.Equal(t, c.over, over(h, Clock{c.now, c.boot, c.uptime}), "%+v", c)
	}
}

func TestTakeAndGive(t *testing.T) {
	s := store.At(filepath.Join(t.TempDir(), "store"))
	c := Clock{noon, "a", time.Hour}
	take := func(reason string) error {
		_, err := Take(t.Context(), s, c, store.Hold{Reason: reason, Seconds: 60})
		return err
	}
	require.NoError(t, Check(s, c))
	require.NoError(t, take("os"))
	require.ErrorIs(t, Check(s, c), ErrHeld)
	require.ErrorIs(t, take("somebody"), ErrHeld)
	c.Uptime += 50 * time.Second
	require.NoError(t, take("os"), "the same reason begins anew")
	c.Uptime += 50 * time.Second
	require.ErrorIs(t, Check(s, c), ErrHeld)
	given, left, err := Give(t.Context(), s, c, "os")
	require.NoError(t, err)
	require.True(t, given)
	require.Nil(t, left)
	require.NoError(t, Check(s, c))
	given, _, err = Give(t.Context(), s, c, "")
	require.NoError(t, err)
	require.False(t, given)
	for _, reason := range []string{"", "two\nlines", strings.Repeat("x", MaxReason+1)} {
		require.Error(t, take(reason))
	}

	// A file that cannot be read holds until somebody gives it back.
	require.NoError(t, os.WriteFile(s.Meta("hold.json"), []byte("{"), 0o600))
	require.ErrorIs(t, Check(s, c), ErrHeld)
	given, _, err = Give(t.Context(), s, c, "")
	require.NoError(t, err)
	require.True(t, given)
	require.NoError(t, Check(s, c))
}

// What a sentence takes of a hold ends with a whole character.
func TestWho(t *testing.T) {
	said := Who(&store.Hold{Reason: "x" + strings.Repeat("é", 2*MaxReason)})
	require.True(t, utf8.ValidString(said))
	require.Equal(t, "x"+strings.Repeat("é", MaxReason-1)+"…", said)
}
