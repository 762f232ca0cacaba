package artifact

import (
	"encoding/json"

	"github.com/mender-app/mender-app/artifact/image"
)

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
	FeatureDelta    = "delta/1"    // images as image.delta, in the format of the room delta
	FeatureVariants = "variants/1" // images in several variants, of which a device takes one
	FeaturePolicy   = "policy/1"   // a policy, which the device decides by
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
	Reboot             bool        `json:"reboot,omitempty"` // the machine is restarted before the commit
	Components         []Component `json:"components,omitempty"`
	Sizes              *Sizes      `json:"sizes,omitempty"`    // nil: not announced (the reference)
	Requires           []string    `json:"requires,omitempty"` // features the reader must have
	// Policy is what modules/policy reads, a JSON object; nil: there is none.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Statement is what package statement reads, a JSON object: a signature over
	// what the application is. nil: there is none.
	Statement json.RawMessage `json:"statement,omitempty"`
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
	PayloadBytes int64        `json:"payload_bytes"`   // of image.img or image.delta, or of all variants together
	// Variants are the ways in which an image of FormatVariants travels, the
	// best first. A device takes the first whose bases it has.
	Variants []Variant `json:"variants,omitempty"`
}

// Variant is one way of several in which an image travels.
type Variant struct {
	Format       Format         `json:"format"`           // FormatFull or FormatDelta
	Bases        []Base         `json:"bases,omitempty"`  // of a delta
	Shared       bool           `json:"shared,omitempty"` // it needs image.shared, made from the first of its bases
	Layers       []VariantLayer `json:"layers"`           // in the order of the component's
	PayloadBytes int64          `json:"payload_bytes"`    // of its members, image.shared among them
	Temp         int64          `json:"temp"`             // as in Sizes, for this image alone
	Memory       int64          `json:"memory"`
	Engine       int64          `json:"engine"`
}

// VariantLayer is how a layer travels in one variant.
type VariantLayer struct {
	Encoding Encoding `json:"encoding"`
	Bytes    int64    `json:"bytes"` // in the variant's own member
}

// As returns the component as variant i of it has it: its format, bases and
// layers, and the bytes of its members.
func (c Component) As(i int) Component {
	v := c.Variants[i]
	layers := make([]Layer, len(c.Layers))
	for n, l := range c.Layers {
		layers[n] = Layer{DiffID: l.DiffID, Size: l.Size, Unpacked: l.Unpacked, Encoding: v.Layers[n].Encoding, Bytes: v.Layers[n].Bytes}
	}
	c.Format, c.Bases, c.Layers, c.PayloadBytes, c.Variants = v.Format, v.Bases, layers, v.PayloadBytes, nil
	return c
}

// Members names the members of the images payload that make up variant i, in
// their order there.
func (c Component) Members(i int) []string {
	v := c.Variants[i]
	switch {
	case v.Format == FormatFull:
		return []string{memberImage}
	case v.Shared:
		return []string{memberShared, memberVariant(i + 1)}
	}
	return []string{memberVariant(i + 1)}
}

// Format is how a component's image travels.
type Format string

// The values of Format.
const (
	FormatFull  Format = "full"
	FormatDelta Format = "delta"
	// FormatVariants: in one of several ways, which the variants tell.
	FormatVariants Format = "variants"
)

// Encoding is how one layer travels.
type Encoding string

// The values of Encoding.
const (
	EncodingVerbatim Encoding = "verbatim" // whole
	EncodingDelta    Encoding = "delta"    // against the content of the bases
	EncodingOmitted  Encoding = "omitted"  // not at all: a base has it
	EncodingVariant  Encoding = "variant"  // as each of the component's variants says
)

// Layer is one layer of a component, the base first.
type Layer struct {
	DiffID   image.Digest `json:"diff_id"`
	Size     int64        `json:"size"` // bytes of the uncompressed tar
	Encoding Encoding     `json:"encoding"`
	Bytes    int64        `json:"bytes"` // in the payload
	// Unpacked is how many bytes the layer's files take, where that is more than
	// Size: a tar may hold sparse files, which engines fill.
	Unpacked int64 `json:"unpacked,omitempty"`
}

// Base is an image that has to be on the device for a delta to apply.
type Base struct {
	URL    string       `json:"url"`
	Digest image.Digest `json:"digest"` // of the image's config
	// DiffIDs are its layers, where a variant has shared content: that is made
	// from files by their path in the image, in whatever layer they are.
	DiffIDs []image.Digest `json:"diff_ids,omitempty"`
}

// Sizes announce what the artifact takes, in bytes; a payload that turns out
// larger than announced is refused. Temp, Memory and Engine are without images
// in variants: the variant that is taken has its own.
type Sizes struct {
	ImagesPayload    int64 `json:"images_payload"`    // images.tar.gz, unpacked: the tar's bytes
	ManifestsPayload int64 `json:"manifests_payload"` // manifests.tar.gz, unpacked: the tar's bytes
	Manifests        int64 `json:"manifests"`         // the unpacked manifests' files
	Temp             int64 `json:"temp"`              // peak of our temporary bytes on the device
	Memory           int64 `json:"memory,omitempty"`  // peak of what rebuilding an image allocates
	Engine           int64 `json:"engine"`            // by which the engine's disk grows
}
