package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// Digest names content by its SHA-256: "sha256:" and 64 lower-case hex
// digits. The zero value names nothing. A Digest made by a conversion instead
// of ParseDigest or FromHex is not checked; see Valid.
type Digest string

const digestPrefix = "sha256:"

// ParseDigest reads "sha256:<64 lower-case hex digits>".
func ParseDigest(s string) (Digest, error) {
	if !Digest(s).Valid() {
		return "", fmt.Errorf("malformed digest %q: want sha256: and 64 lower-case hex digits", clip(s))
	}
	return Digest(s), nil
}

// FromHex makes a Digest of its 64 lower-case hex digits alone, as the
// directories of the images payload carry it.
func FromHex(s string) (Digest, error) {
	d := Digest(digestPrefix + s)
	if !d.Valid() {
		return "", fmt.Errorf("malformed digest %q: want 64 lower-case hex digits", clip(s))
	}
	return d, nil
}

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest(digestPrefix + hex.EncodeToString(sum[:]))
}

func sumDigest(h hash.Hash) Digest {
	return Digest(digestPrefix + hex.EncodeToString(h.Sum(nil)))
}

// Valid tells whether d is well formed.
func (d Digest) Valid() bool {
	h, ok := strings.CutPrefix(string(d), digestPrefix)
	if !ok || len(h) != 2*sha256.Size {
		return false
	}
	for i := range len(h) {
		if c := h[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Hex returns the digest without its "sha256:".
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// String returns d as text.
func (d Digest) String() string { return string(d) }

// clip keeps text from a hostile source short enough for one line.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
