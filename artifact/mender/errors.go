package mender

import "errors"

// Errors a caller may branch on. The text that wraps them says what was found and
// where.
var (
	// ErrFormat: not a Mender Artifact, or a damaged or malformed one.
	ErrFormat = errors.New("bad Mender Artifact")
	// ErrChecksum: a part does not have the checksum the manifest gives.
	ErrChecksum = errors.New("checksum mismatch in Mender Artifact")
	// ErrSignature: a required signature is missing, or no trusted key made it.
	ErrSignature = errors.New("bad signature of Mender Artifact")
	// ErrUnsupported: well formed, but not of a kind this package reads (another
	// version, lzma, several payloads, augmented artifacts).
	ErrUnsupported = errors.New("unsupported Mender Artifact")
	// ErrTooLarge: a part is larger than a reader accepts.
	ErrTooLarge = errors.New("the Mender Artifact is beyond its limits")
	// ErrKey: a key file cannot be used.
	ErrKey = errors.New("unusable key")
)
