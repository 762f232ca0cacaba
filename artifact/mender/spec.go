package mender

import (
	"crypto"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// PayloadTypeApp is the payload type of App Artifacts. It is the name of the update
// module.
const PayloadTypeApp = "app"

// Compression of the header and the data of an artifact.
type Compression string

// The compressions. mender-artifact and mender-client before 3.10 do not read
// zstd. LZMA is an .xz file.
const (
	None Compression = "none"
	Gzip Compression = "gzip"
	LZMA Compression = "lzma"
	Zstd Compression = "zstd"
)

// Compressions lists all compressions.
var Compressions = []Compression{None, Gzip, LZMA, Zstd}

// suffix is the suffix of the names of tars with the compression.
func (c Compression) suffix() string {
	switch c {
	case Gzip:
		return ".gz"
	case LZMA:
		return ".xz"
	case Zstd:
		return ".zst"
	}
	return ""
}

// The bounds of an artifact, for the reader and the writer.
const (
	maxVersion   = 1 << 10 // bytes of the file version
	maxManifest  = 1 << 20
	maxSignature = 16 << 10
	maxHeader    = 8 << 20 // of the header, compressed and uncompressed
	maxInfo      = 1 << 20 // of header-info and of type-info
	maxMetaData  = 4 << 20
	maxFiles     = 256
	maxMembers   = 1024 // of the header
	maxString    = 4096
	maxStrings   = 4096
)

// Spec describes an artifact.
type Spec struct {
	Name        string   // of the artifact, which is the name of the release
	Group       string   // artifact_provides.artifact_group; "" for none
	DeviceTypes []string // at least one
	// DependsNames and DependsGroups are artifact_depends.artifact_name and
	// .artifact_group of the header: what must be installed already.
	DependsNames  []string
	DependsGroups []string

	// Scripts are state scripts, which the Mender client runs before and after its
	// states.
	Scripts []Script

	PayloadType    string
	Provides       map[string]string   // of the payload
	Depends        map[string][]string // of the payload: keys of provides that must have one of these values
	ClearsProvides []string            // patterns of provides that are removed on installation
	MetaData       []byte              // a JSON object; nil for none
	Files          []File
}

// File is one file of the payload.
type File struct {
	Name string // a plain file name
	Size int64
	// Open is called twice, because the checksums come first in an artifact. It
	// must return the same bytes both times.
	Open func() (io.ReadCloser, error)
}

// Script is a state script of an artifact.
type Script struct {
	Name string // the state, when it runs, and its order: ArtifactInstall_Enter_00
	Data []byte
}

// scriptName matches the names that mender-artifact accepts for an artifact's scripts.
// Scripts for the states Idle, Sync and Download belong to the operating system.
var scriptName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Artifact(Install|Reboot|Rollback|RollbackReboot|Commit|Failure)_(Enter|Leave|Error)_[0-9][0-9](_\S+)?$`)
})

// MaxScript bounds a state script, in bytes.
const MaxScript = 1 << 20

// Check refuses a script that Write refuses.
func (s *Script) Check() error {
	if err := checkFileName(s.Name); err != nil || !scriptName().MatchString(s.Name) {
		return fmt.Errorf("a state script has a name such as ArtifactInstall_Enter_00, not %q", s.Name[:min(len(s.Name), 100)])
	}
	if len(s.Data) > MaxScript {
		return fmt.Errorf("script %s of more than %d bytes", s.Name, MaxScript)
	}
	return nil
}

// Options are the options of Write.
type Options struct {
	Compression Compression   // "" is None
	Key         crypto.Signer // RSA, or ECDSA on P-256; nil: unsigned
	// Sign signs instead of Key, with a key that is not here. It gets the SHA-256
	// digest of the manifest (32 bytes) and returns the signature: for RSA,
	// PKCS #1 v1.5; for ECDSA on P-256, the ASN.1 of RFC 3279, or r and s, 32 bytes
	// each; for Ed25519, the signature of the digest as the message. The signature
	// may be in base64.
	Sign func(digest []byte) ([]byte, error)
	// Public verifies the signature of Sign before anything is written; nil: it is
	// not verified.
	Public  crypto.PublicKey
	ModTime time.Time // of all members; zero is 1970
	TempDir string    // for compressed data; "" is os.TempDir
}

// headerInfo is header-info, and typeInfo type-info, with their fields in the
// order mender-artifact writes them.
type headerInfo struct {
	Payloads []payload      `json:"payloads"`
	Provides headerProvides `json:"artifact_provides"`
	Depends  headerDepends  `json:"artifact_depends"`
}

type payload struct {
	Type *string `json:"type"` // null in an artifact without payload
}

type headerProvides struct {
	Name  string `json:"artifact_name"`
	Group string `json:"artifact_group,omitempty"`
}

type headerDepends struct {
	Names       []string `json:"artifact_name,omitempty"`
	DeviceTypes []string `json:"device_type,omitempty"`
	Groups      []string `json:"artifact_group,omitempty"`
}

type typeInfo struct {
	Type     *string            `json:"type"`
	Depends  map[string]oneMany `json:"artifact_depends,omitempty"`
	Provides map[string]string  `json:"artifact_provides,omitempty"`
	Clears   []string           `json:"clears_artifact_provides,omitempty"`
}

// oneMany is a list of strings. A single string is written without the list.
type oneMany []string

func (o *oneMany) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*o = oneMany{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(o))
}

func (o oneMany) MarshalJSON() ([]byte, error) {
	if len(o) == 1 {
		return json.Marshal(o[0])
	}
	return json.Marshal([]string(o))
}

// check checks the fields of an artifact that is written or was read: nothing
// required is missing, and each text is one line.
func (h *headerInfo) check(t *typeInfo) error {
	if len(h.Payloads) != 1 {
		return fmt.Errorf("%w: %d payloads", ErrUnsupported, len(h.Payloads))
	}
	if h.Payloads[0].Type == nil || *h.Payloads[0].Type == "" {
		return fmt.Errorf("%w: no payload type", ErrUnsupported)
	}
	if t.Type == nil || *t.Type != *h.Payloads[0].Type {
		return fmt.Errorf("%w: type-info is of another payload type than header-info", ErrFormat)
	}
	if h.Provides.Name == "" {
		return fmt.Errorf("%w: no artifact name", ErrFormat)
	}
	if len(h.Depends.DeviceTypes) == 0 {
		return fmt.Errorf("%w: no device type", ErrFormat)
	}
	texts := []string{*t.Type, h.Provides.Name, h.Provides.Group}
	for _, list := range [][]string{h.Depends.Names, h.Depends.DeviceTypes, h.Depends.Groups, t.Clears} {
		texts = append(texts, list...)
	}
	for k, v := range t.Provides {
		texts = append(texts, k, v)
	}
	for k, v := range t.Depends {
		texts = append(append(texts, k), v...)
	}
	if len(texts) > maxStrings {
		return fmt.Errorf("%w: %d names in the header", ErrTooLarge, len(texts))
	}
	for _, s := range texts {
		if len(s) > maxString {
			return fmt.Errorf("%w: a name of %d bytes in the header", ErrTooLarge, len(s))
		}
		if !oneLine(s) {
			return fmt.Errorf("%w: a character that cannot be printed in the header, in %q", ErrFormat, s[:min(len(s), 100)])
		}
	}
	return nil
}

func oneLine(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// checkFileName refuses a name that is a path.
func checkFileName(s string) error {
	if s == "" || s == "." || s == ".." || len(s) > 255 || !oneLine(s) {
		return fmt.Errorf("%w: malformed name %q of a payload's file", ErrFormat, s[:min(len(s), 100)])
	}
	for i := range len(s) {
		if s[i] == '/' || s[i] == '\\' {
			return fmt.Errorf("%w: malformed name %q of a payload's file", ErrFormat, s)
		}
	}
	return nil
}
