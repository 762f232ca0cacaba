package image

import "errors"

var errTODO = errors.New("not implemented yet")

// Archive gives random access to the images of a docker-archive, an OCI
// layout (tar or directory) or a hybrid; the tar may be compressed as a whole.
type Archive struct {
	images []*Image
}

// OpenArchive opens the archive at path and reads its manifests and configs,
// which it verifies against their digests; layers are opened on demand. A tar
// that is compressed as a whole is unpacked to an unlinked file in
// os.TempDir. The caller closes the Archive after the last layer is read.
func OpenArchive(path string) (*Archive, error) { return nil, errTODO }

// Close releases the archive; layers can no longer be opened.
func (a *Archive) Close() error { return nil }

// Images lists every image in the archive, each once. Attestations and other
// things in an index that are no images are left out.
func (a *Archive) Images() []*Image { return a.images }

// Select returns the image that suits the platform best; the zero Platform
// takes the only one there is. The image may be a fall-back:
// want.Match(img.Platform).Fallback() tells. If there is none for the
// platform the error is a *PlatformError; if there are several different ones
// that suit equally well, it asks for SelectTag.
func (a *Archive) Select(want Platform) (*Image, error) { return a.SelectTag("", want) }

// SelectTag is Select among the images that bear the tag; "docker.io/" and
// "library/" at the start and ":latest" at the end need not be written. The
// empty tag is borne by all.
func (a *Archive) SelectTag(tag string, want Platform) (*Image, error) { return nil, errTODO }
