package image

import "github.com/mender-app/mender-app/artifact/digest"

// Digest names content by its SHA-256.
type Digest = digest.Digest

// clip keeps text from a hostile source short enough for one line.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
