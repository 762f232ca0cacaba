package mender

import (
	"crypto"
	"io"
)

// ReadOptions say what a reader demands.
type ReadOptions struct {
	// PublicKeys: the artifact must be signed by one of them. None: signatures
	// are not looked at.
	PublicKeys []crypto.PublicKey
}

// Header is what an artifact says of itself.
type Header struct {
	Name           string
	Group          string
	DeviceTypes    []string
	DependsNames   []string
	DependsGroups  []string
	PayloadType    string
	Provides       map[string]string
	Depends        map[string][]string
	ClearsProvides []string
	MetaData       []byte // as it is in the artifact; nil if there is none or it is empty
	Signed         bool   // there is a signature (verified only if keys were given)
	Scripts        []string

	HeaderInfo  []byte // the JSON as it is in the artifact
	TypeInfo    []byte // the JSON as it is in the artifact
	Compression Compression
}

// FileInfo is one file of the payload.
type FileInfo struct {
	Name   string
	Size   int64
	Digest string // the SHA-256 the manifest gives, in hex
}

// Reader reads an artifact from a stream.
type Reader struct{}

// NewReader reads the artifact up to its data: when it returns, the manifest's
// signature (where keys are given) and the header's checksum are verified.
// Memory stays below 16 MiB whatever the artifact, the window of zstd
// included.
func NewReader(r io.Reader, o ReadOptions) (*Reader, error) { return nil, errTODO }

// Header returns what the artifact says of itself. The caller does not change
// it.
func (r *Reader) Header() *Header { return nil }

// Next goes to the next file of the payload; what is left of the one before
// is read and verified. After the last file it reads the artifact to its end
// and returns io.EOF if every file of the manifest was there and nothing else
// was; only then is the artifact whole.
func (r *Reader) Next() (*FileInfo, error) { return nil, errTODO }

// Read reads the current file. At its end it returns io.EOF only if the file
// has the checksum of the manifest; until then its bytes are not to be
// trusted.
func (r *Reader) Read(p []byte) (int, error) { return 0, errTODO }
