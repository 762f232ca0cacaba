package mender

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a key service returns may have any of the forms that key services have.
func TestExternalSignatures(t *testing.T) {
	spec := sampleSpec()
	identity := func(b []byte) []byte { return b }
	encoded := func(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b) + "\n") }
	sideBySide := func(b []byte) []byte {
		var rs struct{ R, S *big.Int }
		_, err := asn1.Unmarshal(b, &rs)
		require.NoError(t, err)
		raw := make([]byte, 64)
		rs.R.FillBytes(raw[:32])
		rs.S.FillBytes(raw[32:])
		return raw
	}
	forms := map[string]map[string]func([]byte) []byte{
		"RSA":     {"binary": identity, "base64": encoded},
		"Ed25519": {"binary": identity, "base64": encoded},
		"ECDSA":   {"ASN.1": identity, "base64": encoded, "r and s": sideBySide, "r and s in base64": func(b []byte) []byte { return encoded(sideBySide(b)) }},
	}
	for kind, list := range forms {
		k, other := newKey(t, kind).signer, newKey(t, "ECDSA").signer
		for form, convert := range list {
			t.Run(kind+" "+form, func(t *testing.T) {
				sign := func(digest []byte) ([]byte, error) {
					require.Len(t, digest, 32)
					hash := crypto.SHA256
					if kind == "Ed25519" {
						hash = 0 // the digest is its message
					}
					b, err := k.Sign(rand.Reader, digest, hash)
					return convert(b), err
				}
				for _, public := range []crypto.PublicKey{nil, k.Public()} {
					h, _, err := read(write(t, spec, Options{Sign: sign, Public: public}), k.Public())
					require.NoError(t, err)
					require.True(t, h.Signed)
				}
				var b bytes.Buffer
				err := Write(&b, spec, Options{Sign: sign, Public: other.Public()})
				require.ErrorIs(t, err, ErrKey)
				require.ErrorContains(t, err, "does not fit the public key")
				require.Zero(t, b.Len(), "nothing is written")
			})
		}
	}
	for name, answer := range map[string]string{
		"nothing": "", "text": "error: no such key", "short": strings.Repeat("x", 63), "long": strings.Repeat("x", 3000),
		"numbers that are too long": string(must(asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)}))),
	} {
		t.Run(name, func(t *testing.T) {
			err := Write(io.Discard, spec, Options{Sign: func([]byte) ([]byte, error) { return []byte(answer), nil }})
			require.ErrorIs(t, err, ErrKey)
		})
	}
	failed := errors.New("failed")
	require.ErrorIs(t, Write(io.Discard, spec, Options{Sign: func([]byte) ([]byte, error) { return nil, failed }}), failed)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
