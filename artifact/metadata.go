package artifact

import (
	"encoding/json"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

// The versions of the metadata.
const (
	// VersionReference is written for an artifact that the shell reference
	// can install: full images only.
	VersionReference = "1.0"
	// VersionCurrent is written for an artifact that needs our reader.
	VersionCurrent = "1.1"
)

// Features that an artifact may require of its reader.
const (
	FeatureDelta    = "delta/1"    // images as image.delta, in the format of package delta
	FeatureVariants = "variants/1" // images with several variants, of which a device takes one
	FeaturePolicy   = "policy/1"   // a policy that the device must follow
	FeatureSecrets  = "secrets/1"  // files of the manifests are encrypted to keys of devices
	FeatureFiles    = "files/1"    // components that are files, not images
	FeatureContent  = "content/1"  // images that are not in the payload: devices fetch them by their digests
	FeatureReach    = "reach/1"    // the statement says what the artifact does beside its payload
	FeatureExpiry   = "expiry/1"   // the statement expires
)

// Metadata is the metadata of an App Artifact. The shell reference has the fields
// up to Env; the other fields are ours. Unknown fields are ignored.
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
	// Recipients are the keys that the secrets among the manifests are encrypted to, in
	// age's form (age1…). If empty, they are unknown or there are no secrets.
	Recipients []string `json:"recipients,omitempty"`
	// Policy is a JSON object that modules/policy reads; nil for none.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Statement is a JSON object that package statement reads: a signed statement
	// of what the application is; nil for none.
	Statement json.RawMessage `json:"statement,omitempty"`
	// Revocations is a JSON object that package statement reads: a signed list of the keys
	// and statements that no longer count. It is not about this artifact; nil for none.
	Revocations json.RawMessage `json:"revocations,omitempty"`
	// ContentSources are URLs below which devices find the content of images that is not in
	// the payload, tried in this order after the mirrors that a device knows.
	ContentSources []string `json:"content_sources,omitempty"`
	// Made says what the artifact was made from; nil if its maker did not say. It is for
	// build hosts: devices do not read it.
	Made *Made `json:"made,omitempty"`
}

// Made says what an artifact was made from.
type Made struct {
	By   string `json:"by"`             // the program and its version
	Time string `json:"time,omitempty"` // RFC 3339, in UTC; "" if the maker was told no time
	// Inputs is the SHA-256 of all that decides what the artifact does: artifacts with
	// the same inputs need not be made again. Only its maker knows how to compute it.
	Inputs digest.Digest `json:"inputs"`
	// Over are the artifacts whose images the deltas build on.
	Over []MadeOver `json:"over,omitempty"`
}

// MadeOver is an artifact that another one was made over.
type MadeOver struct {
	Name string `json:"name"`
	// Digest is the SHA-256 of a list of the artifact's images: the digest of each in hex and a
	// newline, sorted. It is the same however the images travel.
	Digest digest.Digest `json:"digest"`
}

// ComponentImage is the type of a component that is a container image. A component
// of any other type is a file, and its digest is the SHA-256 of the file.
const ComponentImage = "image"

// Component is one part of the application that the orchestrator runs. An image
// that the manifests use under several names is one component for each name.
// These differ only in the URL, and the payload has the content once.
type Component struct {
	URL          string       `json:"url"`
	Type         string       `json:"type"`   // ComponentImage, or the word for a kind of file
	Digest       image.Digest `json:"digest"` // of the image's config, or of the file
	Platform     string       `json:"platform"`
	ConfigSize   int64        `json:"config_size,omitempty"` // of an image
	Layers       []Layer      `json:"layers,omitempty"`      // of an image
	Size         int64        `json:"size,omitempty"`        // bytes of a file
	Format       Format       `json:"format"`
	Bases        []Base       `json:"bases,omitempty"` // images a delta builds on
	PayloadBytes int64        `json:"payload_bytes"`   // of image.img or image.delta, or of all variants together
	// Variants are the forms of an image of FormatVariants, the best first. A
	// device takes the first one whose bases it has.
	Variants []Variant `json:"variants,omitempty"`
}

// Variant is one of several forms of an image.
type Variant struct {
	Format       Format         `json:"format"`           // FormatFull or FormatDelta
	Bases        []Base         `json:"bases,omitempty"`  // of a delta
	Shared       bool           `json:"shared,omitempty"` // it needs image.shared, made from the first of its bases
	Layers       []VariantLayer `json:"layers"`           // in the order of the component's
	PayloadBytes int64          `json:"payload_bytes"`    // of its members, with image.shared
	Temp         int64          `json:"temp"`             // as in Sizes, for this image alone
	Memory       int64          `json:"memory"`
	Engine       int64          `json:"engine"`
	Decode       int64          `json:"decode,omitempty"`
	// Content is where the variant is if it is not in the payload; nil if it is there.
	Content *Content `json:"content,omitempty"`
}

// Content is a file that devices fetch by its digest: an images payload of one variant
// of one image.
type Content struct {
	Digest digest.Digest `json:"digest"` // SHA-256 of the file
	Size   int64         `json:"size"`   // bytes of the file
}

// VariantLayer is a layer in one variant.
type VariantLayer struct {
	Encoding Encoding `json:"encoding"`
	Bytes    int64    `json:"bytes"` // in the variant's own member
}

// ImageComponents returns the components that are images.
func (m *Metadata) ImageComponents() []Component {
	return slices.DeleteFunc(slices.Clone(m.Components), func(c Component) bool { return c.IsFile() })
}

// IsFile reports whether the component is a file and not an image.
func (c *Component) IsFile() bool { return c.Type != ComponentImage }

// apart reports whether the image is not in the payload.
func (c *Component) apart() bool { return len(c.Variants) > 0 && c.Variants[0].Content != nil }

// As returns the component with the format, the bases, the layers and the bytes
// of its variant i.
func (c Component) As(i int) Component {
	v := c.Variants[i]
	layers := make([]Layer, len(c.Layers))
	for n, l := range c.Layers {
		layers[n] = Layer{DiffID: l.DiffID, Size: l.Size, Unpacked: l.Unpacked, Encoding: v.Layers[n].Encoding, Bytes: v.Layers[n].Bytes}
	}
	c.Format, c.Bases, c.Layers, c.PayloadBytes, c.Variants = v.Format, v.Bases, layers, v.PayloadBytes, nil
	return c
}

// Members returns the names of the members of the images payload that make up
// variant i, in their order in the payload, or in the file that has it outside of the
// payload.
func (c Component) Members(i int) []string {
	v := c.Variants[i]
	number := i + 1
	if v.Content != nil { // the only one in its file
		number = 1
	}
	switch {
	case v.Format == FormatFull:
		return []string{memberImage}
	case v.Shared:
		return []string{memberShared, memberVariant(number)}
	}
	return []string{memberVariant(number)}
}

// Format is the form in which the payload has an image.
type Format string

// The values of Format.
const (
	FormatFull  Format = "full"
	FormatDelta Format = "delta"
	// FormatVariants: in several forms, which are the variants.
	FormatVariants Format = "variants"
)

// Encoding is the form in which the payload has a layer.
type Encoding string

// The values of Encoding.
const (
	EncodingVerbatim Encoding = "verbatim" // whole
	EncodingDelta    Encoding = "delta"    // as a delta against the content of the bases
	EncodingOmitted  Encoding = "omitted"  // left out: a base has it
	EncodingVariant  Encoding = "variant"  // each variant of the component says how
)

// Layer is one layer of a component. The base layer comes first.
type Layer struct {
	DiffID   image.Digest `json:"diff_id"`
	Size     int64        `json:"size"` // bytes of the uncompressed tar
	Encoding Encoding     `json:"encoding"`
	Bytes    int64        `json:"bytes"` // in the payload
	// Unpacked is the number of bytes of the layer's files if that is more than
	// Size: engines write the holes of sparse files.
	Unpacked int64 `json:"unpacked,omitempty"`
}

// Base is an image or a file that must be on the device to apply a delta.
type Base struct {
	URL    string       `json:"url"`
	Digest image.Digest `json:"digest"` // of the image's config, or of the file
	// Size is the bytes of a file.
	Size int64 `json:"size,omitempty"`
	// DiffIDs are its layers. They are set if a variant has shared content, which is
	// made from files found by path in all layers.
	DiffIDs []image.Digest `json:"diff_ids,omitempty"`
}

// Sizes announce how much space and memory the artifact needs, in bytes. A payload
// that is larger than announced is refused. Temp, Memory, Engine and Decode do not
// count images with variants: each variant has its own.
type Sizes struct {
	ImagesPayload    int64 `json:"images_payload"`    // images.tar.gz, unpacked: the tar's bytes
	ManifestsPayload int64 `json:"manifests_payload"` // manifests.tar.gz, unpacked: the tar's bytes
	Manifests        int64 `json:"manifests"`         // the unpacked manifests' files
	Temp             int64 `json:"temp"`              // peak of temporary files on the device
	Memory           int64 `json:"memory,omitempty"`  // peak of memory to rebuild an image
	Engine           int64 `json:"engine"`            // growth of the engine's disk
	// Decode is roughly the number of instructions needed to decode the deltas (package
	// delta/budget); 0 if not announced.
	Decode int64 `json:"decode,omitempty"`
}
