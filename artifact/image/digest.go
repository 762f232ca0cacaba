package image

import "github.com/mender-app/mender-app/artifact/digest"

// Digest names content by its SHA-256.
type Digest = digest.Digest
