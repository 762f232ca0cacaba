package mender

import (
	"crypto"
	"errors"
	"io"
	"time"
)

var errTODO = errors.New("not implemented yet")

// PayloadTypeApp is the payload type of App Artifacts, which is the name of
// the update module.
const PayloadTypeApp = "app"

// Compression of the header and the data of an artifact.
type Compression string

// The compressions. mender-artifact and mender-client before 3.10 and the C++
// client do not read zstd.
const (
	None Compression = "none"
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

// Spec is what an artifact says and holds.
type Spec struct {
	Name        string   // the artifact's (release's) name
	Group       string   // artifact_provides.artifact_group; "" for none
	DeviceTypes []string // at least one
	// DependsNames and DependsGroups are artifact_depends.artifact_name and
	// .artifact_group of the header: what must be installed before.
	DependsNames  []string
	DependsGroups []string

	PayloadType    string
	Provides       map[string]string // of the payload; see SoftwareProvides
	Depends        map[string]string // of the payload: keys of provides that must have these values
	ClearsProvides []string          // patterns of provides that are removed on installation
	MetaData       []byte            // a JSON object; nil for none
	Files          []File
}

// File is one file of the payload.
type File struct {
	Name string // a plain file name
	Size int64
	// Open is called twice while writing (the checksums come first in an
	// artifact) and gives the same bytes both times.
	Open func() (io.ReadCloser, error)
}

// Options say how an artifact is written.
type Options struct {
	Compression Compression   // "" is None
	Key         crypto.Signer // RSA, or ECDSA on P-256; nil: unsigned
	ModTime     time.Time     // of all members; zero is 1970
	TempDir     string        // for compressed data; "" is os.TempDir
}

// Write writes an artifact to w: the same bytes for the same spec and options,
// except that an ECDSA signature differs each time. Without compression
// nothing is kept on disk; with it the data goes through a file in TempDir,
// because its size comes before it. Memory does not grow with the files.
func Write(w io.Writer, spec Spec, o Options) error { return errTODO }

// SoftwareProvides returns what mender-artifact puts into provides and
// clears-provides for --software-filesystem (default "rootfs-image"),
// --software-name (default the payload type, so give "app") and
// --software-version (default the artifact's name).
func SoftwareProvides(filesystem, name, version string) (provides map[string]string, clears []string) {
	if filesystem == "" {
		filesystem = "rootfs-image"
	}
	return map[string]string{filesystem + "." + name + ".version": version}, []string{filesystem + "." + name + ".*"}
}

// LoadPrivateKey reads a PEM private key for signing: RSA or ECDSA P-256, in
// PKCS #8, PKCS #1 or SEC 1, not encrypted.
func LoadPrivateKey(pem []byte) (crypto.Signer, error) { return nil, errTODO }

// LoadPublicKey reads a PEM public key for verification: RSA or ECDSA P-256,
// in PKIX or PKCS #1, or a certificate's.
func LoadPublicKey(pem []byte) (crypto.PublicKey, error) { return nil, errTODO }
