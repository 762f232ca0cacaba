package mender

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"fmt"
	"math/big"
)

// signExternal makes a signature with the function of Options.Sign, and verifies
// it if the public key is known.
func signExternal(sign func([]byte) ([]byte, error), public crypto.PublicKey, manifest []byte) ([]byte, error) {
	if public != nil {
		if err := checkPublic(public); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(manifest)
	raw, err := sign(sum[:])
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	var reason error
	for _, sig := range rawSignatures(raw) {
		if public == nil {
			return sig, nil
		}
		if reason = verify(public, manifest, sig); reason == nil {
			return sig, nil
		}
	}
	if reason != nil {
		return nil, fmt.Errorf("sign: %w: the signature that was made does not fit the public key", ErrKey)
	}
	return nil, fmt.Errorf("sign: %w: %d bytes are no signature of RSA, ECDSA P-256 or Ed25519", ErrKey, len(raw))
}

// rawSignatures lists the ways to read b as a signature in an artifact: an RSA or
// Ed25519 signature is taken as it is; an ECDSA P-256 signature becomes r and s side
// by side.
func rawSignatures(b []byte) (list [][]byte) {
	if text := bytes.TrimSpace(b); len(text) > 0 {
		// no binary signature happens to be valid base64
		if decoded, err := base64.StdEncoding.DecodeString(string(text)); err == nil {
			b = decoded
		}
	}
	var rs struct{ R, S *big.Int }
	rest, err := asn1.Unmarshal(b, &rs)
	der := err == nil && len(rest) == 0 && rs.R.Sign() > 0 && rs.S.Sign() > 0 && rs.R.BitLen() <= 8*scalar && rs.S.BitLen() <= 8*scalar
	if der {
		sig := make([]byte, 2*scalar)
		rs.R.FillBytes(sig[:scalar])
		rs.S.FillBytes(sig[scalar:])
		list = append(list, sig)
	}
	if len(b) == 2*scalar || !der && len(b) >= 128 && len(b) <= 2048 {
		list = append(list, b)
	}
	return list
}
