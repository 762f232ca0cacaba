package store_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
)

func TestTrust(t *testing.T) {
	s := newStore(t)
	require.NoError(t, s.Prepare())
	empty, err := s.Trust()
	require.NoError(t, err)
	require.Empty(t, empty.Times)

	at := time.Date(2027, 6, 21, 12, 0, 0, 0, time.UTC)
	require.NoError(t, s.PutTrust(store.Trust{Times: map[string]time.Time{"": at, "shop": at}, Revocations: json.RawMessage(`{"payload":"e30="}`)}))
	got, err := s.Trust()
	require.NoError(t, err)
	require.Equal(t, map[string]time.Time{"": at, "shop": at}, got.Times)
	require.JSONEq(t, `{"payload":"e30="}`, string(got.Revocations))

	// It outlives the applications.
	a, err := s.Create("shop")
	require.NoError(t, err)
	require.NoError(t, a.Save())
	require.NoError(t, a.Forget())
	after, err := s.Trust()
	require.NoError(t, err)
	require.Equal(t, got, after)

	// What a later version writes survives this one, unless its format is newer.
	path := s.Meta("trust.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"format":1,"later":[1]}`), 0o600))
	got, err = s.Trust()
	require.NoError(t, err)
	require.NoError(t, s.PutTrust(got))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), `"later"`)
	require.NoError(t, os.WriteFile(path, []byte(`{"format":2}`), 0o600))
	_, err = s.Trust()
	require.ErrorIs(t, err, store.ErrNewer)

	// Damage is no empty list.
	for _, text := range []string{"", "{", `{"times":{"shop":"soon"}}`, "[]"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err = s.Trust()
		var corrupt *store.CorruptError
		require.ErrorAs(t, err, &corrupt, text)
	}
}

// FuzzTrust: whatever is in trust.json, it is read and written again, or an error says so.
func FuzzTrust(f *testing.F) {
	for _, seed := range []string{`{"format":1,"times":{"":"2027-06-21T12:00:00Z"},"revocations":{"payload":"e30="},"x":1}`, `{"format":9}`, "null", `{"revocations":null}`, "\x00"} {
		f.Add([]byte(seed))
	}
	s := store.At(f.TempDir())
	require.NoError(f, s.Prepare())
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(s.Meta("trust.json"), data, 0o600))
		got, err := s.Trust()
		if err != nil {
			return
		}
		require.NoError(t, s.PutTrust(got))
		again, err := s.Trust()
		require.NoError(t, err)
		require.Len(t, again.Times, len(got.Times))
	})
}
