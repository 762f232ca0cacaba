package statement

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
)

// Several keys sign the same bytes, one after the other.
func TestAddSignature(t *testing.T) {
	first, second := newKey(t), newKey(t)
	s, err := Parse(signed(t, Of(sample(), sum("manifests")), first))
	require.NoError(t, err)
	b, err := s.AddSignature(mender.Options{Key: second})
	require.NoError(t, err)
	require.Equal(t, 1, s.Signatures(), "the statement that was read stays as it is")
	both, err := Parse(b)
	require.NoError(t, err)
	require.Equal(t, s.Digest(), both.Digest())
	require.Equal(t, 2, both.Signatures())
	require.True(t, both.SignedBy(first.Public()))
	require.True(t, both.SignedBy(second.Public()))
	for range MaxSignatures - 2 {
		b, err = both.AddSignature(mender.Options{Key: second})
		require.NoError(t, err)
		both, err = Parse(b)
		require.NoError(t, err)
	}
	_, err = both.AddSignature(mender.Options{Key: second})
	require.ErrorIs(t, err, ErrStatement)
}

func TestRevocations(t *testing.T) {
	first, second := newKey(t), newKey(t)
	want := Revocations{Version: 3, Keys: []digest.Digest{sum("key")}, Statements: []digest.Digest{sum("statement")}}
	b, err := SignRevocations(&want, mender.Options{Key: first})
	require.NoError(t, err)
	r, err := ParseRevocations(b)
	require.NoError(t, err)
	require.Equal(t, want, r.Revocations)
	require.True(t, r.SignedBy(first.Public()))
	b, err = r.AddSignature(mender.Options{Key: second})
	require.NoError(t, err)
	r, err = ParseRevocations(b)
	require.NoError(t, err)
	require.True(t, r.SignedBy(first.Public()) && r.SignedBy(second.Public()))

	// A signature of a list is none of a statement, and the other way round.
	_, err = Parse(b)
	require.ErrorIs(t, err, ErrStatement)
	_, err = ParseRevocations(signed(t, Of(sample(), sum("manifests")), first))
	require.ErrorIs(t, err, ErrStatement)

	_, err = SignRevocations(&Revocations{}, mender.Options{Key: first})
	require.ErrorContains(t, err, "version 0")
	_, err = SignRevocations(&want, mender.Options{})
	require.ErrorContains(t, err, "no key to sign with")

	with := func(payload string) string {
		return fmt.Sprintf(`{"payloadType":%q,"payload":%q,"signatures":[{"sig":"AA=="}]}`, RevocationsType, base64.StdEncoding.EncodeToString([]byte(payload)))
	}
	for name, c := range map[string]struct{ text, says string }{
		"nothing":        {"", "envelope"},
		"empty":          {with(""), ""},
		"no version":     {with(`{}`), "version 0"},
		"negative":       {with(`{"version":-1}`), "version -1"},
		"too great":      {with(`{"version":99999999999999999999}`), ""},
		"version twice":  {with(`{"version":1,"version":2}`), "twice"},
		"unknown field":  {with(`{"version":1,"until":2}`), "until"},
		"bad key":        {with(`{"version":1,"keys":["sha256:00"]}`), "malformed digest"},
		"bad statement":  {with(`{"version":1,"statements":["x"]}`), "malformed digest"},
		"something more": {with(`{"version":1}`) + "{}", "envelope"},
		"too large":      {with(`{"version":1,"keys":["` + strings.Repeat("a", artifact.MaxRevocations) + `"]}`), "larger than"},
	} {
		_, err := ParseRevocations([]byte(c.text))
		require.ErrorIs(t, err, ErrStatement, name)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "\n", name)
	}
}

func FuzzRevocations(f *testing.F) {
	key := newKey(f)
	good, err := SignRevocations(&Revocations{Version: 3, Keys: []digest.Digest{sum("key")}, Statements: []digest.Digest{sum("s")}}, mender.Options{Key: key})
	require.NoError(f, err)
	f.Add([]byte(good))
	f.Add([]byte(`{"payloadType":"` + RevocationsType + `","payload":"eyJ2ZXJzaW9uIjoxfQ==","signatures":[{"sig":""}]}`))
	var e envelope
	require.NoError(f, json.Unmarshal(good, &e))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRevocations(b)
		if err != nil {
			require.ErrorIs(t, err, ErrStatement)
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.Positive(t, r.Version)
		for _, d := range slices.Concat(r.Keys, r.Statements) {
			require.True(t, d.Valid())
		}
		if r.SignedBy(key.Public()) { // nobody makes another text that is signed
			require.Equal(t, e.Payload, r.Payload)
		}
		again, err := SignRevocations(&r.Revocations, mender.Options{Key: key})
		require.NoError(t, err)
		read, err := ParseRevocations(again)
		require.NoError(t, err)
		require.Equal(t, r.Version, read.Version)
	})
}
