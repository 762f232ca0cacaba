// Package imagestore loads, verifies and repairs images in any engine's image
// store. It gives images references of our own, turns incoming content into one
// archive that an engine can load (Load, Receive), reads the old content that
// deltas start from (Old; UnpackedStore for stores of containerd's kind), and
// repairs damaged images (Repair).
//
// An image is identified by its content: the digest of its config and its
// diffIDs. The package must not know any engine, orchestrator or update. The
// engines are in the directories below it; package storetest tests them.
package imagestore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// OwnDomain begins the references that mender-app gives images.
const OwnDomain = image.OwnDomain

// CheckName refuses an image's name in manifests that is an own reference, with
// submodules.ErrContent: an application must not use another application's reference.
func CheckName(url string) error {
	if image.InOwnDomain(url) {
		return submodules.Mark(fmt.Errorf("%s is a name that mender-app gives the images of an application that is installed: use another", url), submodules.ErrContent)
	}
	return nil
}

// A component of a repository's path as Docker and OCI have it.
var pathComponent = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$`)
})

// OwnRepository returns the repository of an application's own references. If
// the application's name is not valid in a reference, a hash of it is used. No
// two applications share a repository.
func OwnRepository(app string) string {
	if pathComponent().MatchString(app) && !strings.HasPrefix(app, "x-") {
		return OwnDomain + "/" + app
	}
	sum := sha256.Sum256([]byte(app))
	return OwnDomain + "/x-" + hex.EncodeToString(sum[:16])
}

// OwnRef returns the application's own reference to an image. It says which
// application needs the image, and no other release moves it.
func OwnRef(app string, config image.Digest) string {
	return OwnRepository(app) + ":" + config.Hex()
}

// ManifestRef is OwnRef for an image that the application's release identifies by
// the digest of an OCI manifest, as the shell reference does for images of
// containerd's image store. The engine does not keep that manifest, so only this
// reference tells which image is meant.
func ManifestRef(app string, manifest image.Digest) string {
	return OwnRepository(app) + ":" + manifestTag + manifest.Hex()
}

const manifestTag = "m-"

// ParseManifestRef returns the digest in a ManifestRef of the application.
func ParseManifestRef(app, ref string) (manifest image.Digest, ok bool) {
	tag, ok := strings.CutPrefix(ref, OwnRepository(app)+":"+manifestTag)
	if !ok {
		return "", false
	}
	d, err := digest.FromHex(tag)
	return d, err == nil
}

// IsManifestRef reports whether ref is some application's ManifestRef of a digest.
func IsManifestRef(ref string, manifest image.Digest) bool {
	return IsOwnRef(ref) && strings.HasSuffix(ref, ":"+manifestTag+manifest.Hex())
}

// IsOwnRef reports whether ref is the own reference of some application.
func IsOwnRef(ref string) bool { return strings.HasPrefix(ref, OwnDomain+"/") }

// ParseOwnRef returns the config digest in an own reference of the application;
// ok is false for any other reference.
func ParseOwnRef(app, ref string) (config image.Digest, ok bool) {
	tag, ok := strings.CutPrefix(ref, OwnRepository(app)+":")
	if !ok {
		return "", false
	}
	d, err := digest.FromHex(tag)
	return d, err == nil
}

// OwnConfig returns the config digest in an own reference of any application; ok is
// false for any other reference.
func OwnConfig(ref string) (config image.Digest, ok bool) {
	if !IsOwnRef(ref) {
		return "", false
	}
	d, err := digest.FromHex(ref[strings.LastIndexByte(ref, ':')+1:])
	return d, err == nil
}

// Identity identifies an image: the digest of its config, and the diffIDs of its
// layers, if they are known.
type Identity struct {
	Config  image.Digest
	DiffIDs []image.Digest
}

// is reports whether both are the same image. The other's diffIDs are compared
// if they are known.
func (id Identity) is(other Identity) bool {
	return id.Config == other.Config && (other.DiffIDs == nil || slices.Equal(id.DiffIDs, other.DiffIDs))
}
