// Package digest names content by its SHA-256. Every package uses this type: a layer,
// a config or a manifest has the same [Digest] in an artifact, a delta, the store and
// an image store. Conversions are needed only where a library has a type of its own.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// Digest is "sha256:" and 64 lower-case hex digits, as in OCI. The zero value
// names nothing. A Digest that was read from JSON or converted from a string is
// not checked; see Valid.
type Digest string

const prefix = "sha256:"

// Parse reads "sha256:<64 lower-case hex digits>".
func Parse(s string) (Digest, error) {
	d := Digest(s)
	if err := d.Check(); err != nil {
		return "", err
	}
	return d, nil
}

// FromHex makes a Digest from its 64 lower-case hex digits alone, the form in names
// of directories and tags.
func FromHex(s string) (Digest, error) {
	d := Digest(prefix + s)
	if !d.Valid() {
		return "", malformed(s, "64 lower-case hex digits")
	}
	return d, nil
}

// Of returns the digest of b.
func Of(b []byte) Digest { return FromSum(sha256.Sum256(b)) }

// FromSum returns the digest whose SHA-256 is sum.
func FromSum(sum [sha256.Size]byte) Digest {
	return Digest(prefix + hex.EncodeToString(sum[:]))
}

// OfHash returns the digest of what was written to h, which is a SHA-256 of
// [sha256.New].
func OfHash(h hash.Hash) Digest {
	return FromSum([sha256.Size]byte(h.Sum(nil)))
}

// OfFile returns the digest of a file.
func OfFile(path string) (Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	d, _, err := OfReader(f)
	return d, err
}

// OfReader reads r to its end and returns the digest and the number of bytes.
func OfReader(r io.Reader) (Digest, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		return "", n, err
	}
	return OfHash(h), n, nil
}

// Valid reports whether d is well formed.
func (d Digest) Valid() bool {
	h, ok := strings.CutPrefix(string(d), prefix)
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

// Check returns an error unless d is well formed.
func (d Digest) Check() error {
	if algorithm, _, ok := strings.Cut(string(d), ":"); ok && (algorithm == "sha512" || algorithm == "sha384") {
		return fmt.Errorf("digests of %s are not supported: want sha256", algorithm)
	}
	if !d.Valid() {
		return malformed(string(d), "sha256: and 64 lower-case hex digits")
	}
	return nil
}

// Sum returns the SHA-256 that d names. The error says that d is malformed.
func (d Digest) Sum() (sum [sha256.Size]byte, err error) {
	if err := d.Check(); err != nil {
		return sum, err
	}
	_, err = hex.Decode(sum[:], []byte(d.Hex()))
	return sum, err
}

// Hex returns the digest without its "sha256:".
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), prefix) }

// String returns d as text.
func (d Digest) String() string { return string(d) }

// malformed shows at most 100 bytes of s, which may come from a hostile source.
func malformed(s, want string) error {
	const most = 100
	if len(s) > most {
		return fmt.Errorf("malformed digest %q…: want %s", s[:most], want)
	}
	return fmt.Errorf("malformed digest %q: want %s", s, want)
}
