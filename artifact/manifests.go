package artifact

import (
	"io"
	"io/fs"
	"os"
)

// ManifestLimits bound a manifests payload. A zero field means its default.
type ManifestLimits struct {
	MaxBytes   int64 // the payload, unpacked (Sizes.ManifestsPayload); default 64 MiB
	MaxEntries int   // files, directories and links; default 10000
}

// ReadManifests unpacks a manifests payload (tar, or tar.gz) into root, which
// should be empty; the leading "manifests/" of its members is stripped.
// Regular files, directories, and symbolic links that resolve to one of them
// inside the tree are unpacked; anything else is refused. Modes lose set-id
// and sticky bits and writing by others; owners and times are not taken over.
//
// Nothing outside root is touched. On an error the caller removes root. The
// files are not synced.
func ReadManifests(r io.Reader, root *os.Root, limits ManifestLimits) error { return errTODO }

// ManifestsSize is what a manifests payload takes.
type ManifestsSize struct {
	Payload int64 // the tar's bytes (Sizes.ManifestsPayload)
	Files   int64 // the files' bytes (Sizes.Manifests)
}

// WriteManifests writes fsys as a manifests payload (tar.gz): sorted, owned by
// root, without times. It refuses what ReadManifests refuses. Symbolic links
// are kept if fsys is an fs.ReadLinkFS (os.DirFS and os.Root.FS are). The
// same tree gives the same bytes.
func WriteManifests(w io.Writer, fsys fs.FS) (ManifestsSize, error) { return ManifestsSize{}, errTODO }
