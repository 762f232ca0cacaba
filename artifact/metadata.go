package artifact

import "github.com/mender-app/mender-app/artifact/image"

// The versions of the metadata.
const (
	// VersionReference is written for an artifact that the shell reference
	// can install: full images only.
	VersionReference = "1.0"
	// VersionCurrent is written for an artifact that needs a reader of ours.
	VersionCurrent = "1.1"
)

// Names of features an artifact may require of its reader.
const (
	FeatureDelta = "delta/1" // images as image.delta, in the format of the room delta
)

// Metadata is the meta-data of an App Artifact. The fields up to Env are the
// reference's; the others are ours, and additive. Unknown fields are ignored.
type Metadata struct {
	Version         string            `json:"version"`
	ApplicationName string            `json:"application_name"`
	Orchestrator    string            `json:"orchestrator"`
	Platform        string            `json:"platform"`
	Images          []string          `json:"images,omitempty"` // sorted hex digests of all images, current and new
	Env             map[string]string `json:"env,omitempty"`

	ApplicationVersion string      `json:"application_version,omitempty"`
	Components         []Component `json:"components,omitempty"`
	Sizes              *Sizes      `json:"sizes,omitempty"`    // nil: not announced (the reference)
	Requires           []string    `json:"requires,omitempty"` // features the reader must have
}

// ComponentImage is the type of a component that is a container image.
const ComponentImage = "image"

// Component is one part of the application that the orchestrator runs. An image
// that the manifests use under several names is a component under each, the
// same but for the URL; the payload has its content once.
type Component struct {
	URL          string       `json:"url"`
	Type         string       `json:"type"`   // ComponentImage
	Digest       image.Digest `json:"digest"` // of the image's config
	Platform     string       `json:"platform"`
	ConfigSize   int64        `json:"config_size"`
	Layers       []Layer      `json:"layers"`
	Format       Format       `json:"format"`
	Bases        []Base       `json:"bases,omitempty"` // images a delta builds on
	PayloadBytes int64        `json:"payload_bytes"`   // of image.img or image.delta
}

// Format is how a component's image travels.
type Format string

// The values of Format.
const (
	FormatFull  Format = "full"
	FormatDelta Format = "delta"
)

// Encoding is how one layer travels.
type Encoding string

// The values of Encoding.
const (
	EncodingVerbatim Encoding = "verbatim" // whole
	EncodingDelta    Encoding = "delta"    // against the content of the bases
	EncodingOmitted  Encoding = "omitted"  // not at all: a base has it
)

// Layer is one layer of a component, the base first.
type Layer struct {
	DiffID   image.Digest `json:"diff_id"`
	Size     int64        `json:"size"` // bytes of the uncompressed tar
	Encoding Encoding     `json:"encoding"`
	Bytes    int64        `json:"bytes"` // in the payload
}

// Base is an image that has to be on the device for a delta to apply.
type Base struct {
	URL    string       `json:"url"`
	Digest image.Digest `json:"digest"` // of the image's config
}

// Sizes announce what the artifact takes, in bytes; a payload that turns out
// larger than announced is refused.
type Sizes struct {
	ImagesPayload    int64 `json:"images_payload"`    // images.tar.gz, unpacked: the tar's bytes
	ManifestsPayload int64 `json:"manifests_payload"` // manifests.tar.gz, unpacked: the tar's bytes
	Manifests        int64 `json:"manifests"`         // the unpacked manifests' files
	Temp             int64 `json:"temp"`              // peak of our temporary bytes on the device
	Engine           int64 `json:"engine"`            // by which the engine's disk grows
}
