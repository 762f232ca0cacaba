package image

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
)

// MaxConfig is the greatest size of a config or a manifest, in bytes. containerd
// has the same bound.
const MaxConfig = 4 << 20

// MaxLayers is the greatest number of layers an image may have. Docker stops
// at 125 and overlayfs at 500.
const MaxLayers = 512

// The media types of layers.
const (
	MediaTypeLayer     = "application/vnd.oci.image.layer.v1.tar"
	MediaTypeLayerGzip = "application/vnd.oci.image.layer.v1.tar+gzip"
	MediaTypeLayerZstd = "application/vnd.oci.image.layer.v1.tar+zstd"
	mediaTypeLayers    = "application/vnd.oci.image.layer."
	dockerLayers       = "application/vnd.docker.image.rootfs."
	mediaTypeConfig    = "application/vnd.oci.image.config.v1+json"
	mediaTypeManifest  = "application/vnd.oci.image.manifest.v1+json"
	mediaTypeIndex     = "application/vnd.oci.image.index.v1+json"
	dockerConfig       = "application/vnd.docker.container.image.v1+json"
	dockerManifest     = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex        = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// Image is one image for one platform. ConfigDigest identifies it, and the config
// has its diffIDs.
type Image struct {
	ConfigDigest Digest
	Config       []byte   // the config as it is in its blob, byte for byte
	DiffIDs      []Digest // of the layers, the base first
	Platform     Platform // normalised, from the config; see also OpenOnHost
	Tags         []string // its names in the archive, as written there
	refs         []string // what it may be chosen by too: org.opencontainers.image.ref.name, beside containerd's name
	// Manifests are the digests by which an engine with containerd's image store knows
	// the image: the OCI manifests that name the config, and the indexes that name these
	// manifests. A manifest or index is listed only if the archive has it, index.json
	// leads to it, and its content matches its digest.
	Manifests []Digest
	Layers    []Layer // one for each diffID, in the same order
}

// Layer is one layer of an Image.
type Layer struct {
	DiffID Digest
	// Size is the number of bytes of the uncompressed tar, or -1 if it is not
	// known. Verify and Measure set it.
	Size int64
	// MediaType, Blob and BlobSize describe the stored blob of the layer; they are
	// empty and 0 if they are not known.
	MediaType string
	Blob      Digest
	BlobSize  int64
	// Open returns the uncompressed tar from its start. It may be called several times.
	// The reader is also an io.ReaderAt if the Archive holds the layer uncompressed. The
	// content is not verified; see Layer.Verified. Open is nil for a layer that is
	// omitted from the archive.
	Open func() (io.ReadCloser, error)
}

// Config has the fields of an image's config that are needed here. Unknown
// fields are ignored.
type Config struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []Digest `json:"diff_ids"`
	} `json:"rootfs"`
}

// ParseConfig reads an image's config. It checks that there is a platform, and
// that there are at most MaxLayers diffIDs, which are well formed.
func ParseConfig(b []byte) (*Config, error) {
	c, err := parseConfig(b)
	if err != nil {
		return nil, err
	}
	if !c.Platform().Complete() {
		return nil, ErrNoPlatform
	}
	return c, nil
}

// parseConfig is ParseConfig for a config that may lack the platform, or a part of it.
func parseConfig(b []byte) (*Config, error) {
	if len(b) > MaxConfig {
		return nil, fmt.Errorf("%w: an image config of %d bytes", ErrTooLarge, len(b))
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%w: image config: %w", ErrFormat, err)
	}
	if c.RootFS.Type != "" && c.RootFS.Type != "layers" {
		return nil, fmt.Errorf("%w: image config: rootfs type %q", ErrFormat, clip.Text(c.RootFS.Type))
	}
	if len(c.RootFS.DiffIDs) > MaxLayers {
		return nil, fmt.Errorf("%w: an image of %d layers", ErrTooLarge, len(c.RootFS.DiffIDs))
	}
	for _, d := range c.RootFS.DiffIDs {
		if err := d.Check(); err != nil {
			return nil, fmt.Errorf("%w: image config: diffID: %w", ErrFormat, err)
		}
	}
	if err := c.Platform().check(); err != nil {
		return nil, fmt.Errorf("%w: image config: %w", ErrFormat, err)
	}
	return &c, nil
}

// Platform returns the config's platform, normalised.
func (c *Config) Platform() Platform {
	return Platform{c.OS, c.Architecture, c.Variant}.Normalize()
}

// New makes an Image of a config and layers. It sets the diffIDs of layers that
// have none, and refuses layers that are not those of the config.
func New(config []byte, layers []Layer, tags ...string) (*Image, error) {
	c, err := ParseConfig(config)
	if err != nil {
		return nil, err
	}
	return newImage(config, c, c.Platform(), layers, tags)
}

func newImage(config []byte, c *Config, p Platform, layers []Layer, tags []string) (*Image, error) {
	img := &Image{
		ConfigDigest: digest.Of(config),
		Config:       config,
		DiffIDs:      c.RootFS.DiffIDs,
		Platform:     p,
		Tags:         tags,
		Layers:       append([]Layer(nil), layers...),
	}
	if len(layers) != len(img.DiffIDs) {
		return nil, fmt.Errorf("%w: %d layers for a config that has %d", ErrFormat, len(layers), len(img.DiffIDs))
	}
	for i := range img.Layers {
		l := &img.Layers[i]
		if l.DiffID == "" {
			l.DiffID = img.DiffIDs[i]
		}
		if l.DiffID != img.DiffIDs[i] {
			return nil, fmt.Errorf("%w: layer %d is %s, the config has %s", ErrMismatch, i, l.DiffID, img.DiffIDs[i])
		}
	}
	return img, nil
}

// ChainIDs returns the chain IDs of layers, as the OCI image specification defines
// them. Each names a layer with all layers below it. The last one names the whole
// root file system.
func ChainIDs(diffIDs []Digest) []Digest {
	ids := make([]Digest, len(diffIDs))
	for i, d := range diffIDs {
		if i == 0 {
			ids[i] = d
			continue
		}
		ids[i] = digest.Of(fmt.Appendf(nil, "%s %s", ids[i-1], d))
	}
	return ids
}

// Verify reads every layer to its end and compares it with its diffID. After
// success the Size of each layer is known. It uses constant memory. A layer without
// content is an ErrMissing.
func Verify(img *Image) error {
	if digest.Of(img.Config) != img.ConfigDigest {
		return fmt.Errorf("config %s: %w", img.ConfigDigest, ErrMismatch)
	}
	for i := range img.Layers {
		l := &img.Layers[i]
		r, err := l.Verified()
		if err != nil {
			return fmt.Errorf("layer %s: %w", l.DiffID, err)
		}
		n, err := io.Copy(io.Discard, r)
		if cerr := r.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("layer %s: %w", l.DiffID, err)
		}
		l.Size = n
	}
	return nil
}

// Verified opens the layer's content as Open does, and hashes what is read. At the
// end, the reader returns ErrMismatch instead of io.EOF if the content does not have
// the diffID, or does not have Size bytes where Size is known.
func (l *Layer) Verified() (io.ReadCloser, error) {
	if l.Open == nil {
		return nil, ErrMissing
	}
	r, err := l.Open()
	if err != nil {
		return nil, err
	}
	return &verifier{ReadCloser: r, hash: sha256.New(), want: l.DiffID, size: l.Size}, nil
}
