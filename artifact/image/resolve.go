package image

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
)

// maxImages bounds the images of one archive, and maxDepth how deep indexes
// may nest.
const (
	maxImages = 256
	maxDepth  = 4
)

// resolved is an image as the manifests describe it, with the name of the
// archive's member for each layer.
type resolved struct {
	Image
	members []string
}

// identity tells the images of an archive apart. Images whose config has no platform may
// be listed for several.
type identity struct {
	config   Digest
	platform Platform
}

func (r *resolved) identity() identity { return identity{r.ConfigDigest, r.Platform} }

// resolver finds the images of an archive by its manifests. load returns the
// content of a small member, or an ErrMissing.
type resolver struct {
	load func(name string) ([]byte, error)
	// strict: it is an error if the archive lacks what an index names. Otherwise
	// such an image is ignored.
	strict bool
	// onHost: configs may lack the platform, as OpenOnHost describes it.
	onHost bool
}

func (rv resolver) image(config []byte, layers []Layer, listed Platform, tags ...string) (*Image, error) {
	if rv.onHost {
		return NewOnHost(config, layers, listed, tags...)
	}
	return New(config, layers, tags...)
}

// docker reads manifest.json. If it is not there, the error is an ErrMissing.
func (rv resolver) docker() ([]resolved, error) {
	b, err := rv.load(nameManifest)
	if err != nil {
		return nil, err
	}
	var list []dockerImage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, nameManifest, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: %s names no image", ErrFormat, nameManifest)
	}
	if len(list) > maxImages {
		return nil, fmt.Errorf("%w: %d images", ErrTooLarge, len(list))
	}
	var imgs []resolved
	for _, d := range list {
		img, err := rv.dockerImage(d)
		if err != nil {
			return nil, fmt.Errorf("image with config %q: %w", clip.Text(d.Config), err)
		}
		imgs = append(imgs, img)
	}
	return rv.manifests(imgs), nil
}

// manifests finds the OCI manifests of images that manifest.json names, and the platforms
// that the index lists. An index.json that is damaged, or not read yet, names none.
func (rv resolver) manifests(imgs []resolved) []resolved {
	rv.strict = false
	named, err := rv.oci()
	if err != nil {
		return imgs
	}
	var all []resolved
	for _, img := range imgs {
		found := false
		for _, n := range named {
			if n.ConfigDigest == img.ConfigDigest {
				one := img
				one.Layers = slices.Clone(img.Layers)
				one.Manifests, one.Platform = n.Manifests, n.Platform
				all, found = append(all, one), true
			}
			if len(all) > maxImages {
				return imgs
			}
		}
		if !found {
			all = append(all, img)
		}
	}
	return all
}

func (rv resolver) dockerImage(d dockerImage) (resolved, error) {
	config, err := rv.load(path.Clean(d.Config))
	if err != nil {
		return resolved{}, err
	}
	if want := namedDigest(d.Config); want != "" && want != digest.Of(config) {
		return resolved{}, fmt.Errorf("%w: it is %s", ErrMismatch, digest.Of(config))
	}
	layers := make([]Layer, len(d.Layers))
	members := make([]string, len(d.Layers))
	for i, name := range d.Layers {
		layers[i].Size = -1
		members[i] = path.Clean(name)
	}
	img, err := rv.image(config, layers, Platform{}, d.RepoTags...)
	if err != nil {
		return resolved{}, err
	}
	return resolved{*img, members}, nil
}

// namedDigest returns the digest in the name of a member, which is
// blobs/sha256/<hex> or, in a classic archive, <hex>.json; "" for other names.
func namedDigest(name string) Digest {
	base, classic := strings.CutSuffix(path.Base(name), ".json")
	if !classic && !strings.HasPrefix(path.Clean(name), blobDir) {
		return ""
	}
	d, err := digest.FromHex(base)
	if err != nil {
		return ""
	}
	return d
}

// descriptor is an entry of an index, with its platform.
type descriptor struct {
	Descriptor
	Platform *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Variant      string `json:"variant"`
	} `json:"platform"`
}

// listed is the platform that the entry names, or else that of the index around it.
func (d *descriptor) listed(around Platform) Platform {
	if d.Platform == nil {
		return around
	}
	return Platform{d.Platform.OS, d.Platform.Architecture, d.Platform.Variant}.Or(around)
}

// oci reads index.json and the indexes and manifests below it. If index.json is not
// there, the error is an ErrMissing.
func (rv resolver) oci() ([]resolved, error) {
	b, err := rv.load(nameIndex)
	if err != nil {
		return nil, err
	}
	w := walk{resolver: rv, byIdentity: make(map[identity]int)}
	if err := w.index(b, label{}, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", nameIndex, err)
	}
	return w.imgs, nil
}

// walk collects the images under an index.
type walk struct {
	resolver
	imgs       []resolved
	byIdentity map[identity]int // → index in imgs
	seen       int              // descriptors
	above      []Digest         // the indexes being read, except index.json
}

func (w *walk) index(b []byte, named label, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: indexes more than %d deep", ErrTooLarge, maxDepth)
	}
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for _, d := range index.Manifests {
		if w.seen++; w.seen > maxImages {
			return fmt.Errorf("%w: more than %d manifests", ErrTooLarge, maxImages)
		}
		if d.attestation() {
			continue
		}
		inner := labelOf(d.Annotations, named)
		inner.platform = d.listed(named.platform)
		if err := w.descriptor(d, inner, depth); err != nil {
			return err
		}
	}
	return nil
}

// attestation reports whether the descriptor names an attestation, which BuildKit
// adds beside an image.
func (d *descriptor) attestation() bool {
	return d.Annotations["vnd.docker.reference.type"] != "" ||
		d.Platform != nil && d.Platform.OS == "unknown" && d.Platform.Architecture == "unknown"
}

// label is how an index names an image.
type label struct {
	tag string // containerd's name, or else that of OCI
	ref string // that of OCI, if containerd's is beside it
	// platform that the index lists
	platform Platform
}

func labelOf(annotations map[string]string, inherited label) label {
	name, ref := annotations[annotationName], annotations[annotationRef]
	switch {
	case name != "":
		return label{tag: name, ref: ref}
	case ref != "":
		return label{tag: ref}
	}
	return inherited
}

func (w *walk) descriptor(d descriptor, named label, depth int) error {
	switch d.MediaType {
	case mediaTypeIndex, dockerIndex, mediaTypeManifest, dockerManifest, "":
	default:
		return nil // an artifact of another kind
	}
	b, err := w.blob(d.Descriptor)
	if errors.Is(err, ErrMissing) && !w.strict {
		return nil
	}
	if err != nil {
		return err
	}
	if d.MediaType == mediaTypeIndex || d.MediaType == dockerIndex {
		w.above = append(w.above, d.Digest)
		defer func() { w.above = w.above[:len(w.above)-1] }()
		return w.index(b, named, depth+1)
	}
	var m ociManifest
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("manifest %s: %w: %w", d.Digest, ErrFormat, err)
	}
	if m.Config.MediaType != mediaTypeConfig && m.Config.MediaType != dockerConfig || !m.hasLayers() {
		return nil
	}
	img, err := w.manifest(m, named.platform)
	if errors.Is(err, ErrMissing) && !w.strict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	at, ok := w.byIdentity[img.identity()]
	if !ok {
		at = len(w.imgs)
		w.byIdentity[img.identity()] = at
		w.imgs = append(w.imgs, img)
	}
	if named.tag != "" {
		w.imgs[at].Tags = append(w.imgs[at].Tags, named.tag)
	}
	if named.ref != "" {
		w.imgs[at].refs = append(w.imgs[at].refs, named.ref)
	}
	for _, m := range append(w.above, d.Digest) {
		if !slices.Contains(w.imgs[at].Manifests, m) {
			w.imgs[at].Manifests = append(w.imgs[at].Manifests, m)
		}
	}
	return nil
}

// hasLayers reports whether a manifest has layers of an image, or none at all. Signatures
// of cosign and bills of materials have the config of an image, and other content.
func (m *ociManifest) hasLayers() bool {
	return len(m.Layers) == 0 || slices.ContainsFunc(m.Layers, func(d Descriptor) bool { return IsLayer(d.MediaType) })
}

// IsLayer reports whether a media type is that of an image's layer, however it is
// compressed.
func IsLayer(mediaType string) bool {
	return mediaType == "" || strings.HasPrefix(mediaType, mediaTypeLayers) || strings.HasPrefix(mediaType, dockerLayers)
}

func (w *walk) manifest(m ociManifest, listed Platform) (resolved, error) {
	config, err := w.blob(m.Config)
	if err != nil {
		return resolved{}, err
	}
	if len(m.Layers) > MaxLayers {
		return resolved{}, fmt.Errorf("%w: an image of %d layers", ErrTooLarge, len(m.Layers))
	}
	layers := make([]Layer, len(m.Layers))
	members := make([]string, len(m.Layers))
	for i, d := range m.Layers {
		if err := d.Digest.Check(); err != nil || d.Size < 0 {
			return resolved{}, fmt.Errorf("%w: layer %d has a malformed descriptor: %w", ErrFormat, i, cmp.Or(err, errors.New("negative size")))
		}
		layers[i] = Layer{Size: -1, MediaType: d.MediaType, Blob: d.Digest, BlobSize: d.Size}
		members[i] = blobDir + d.Digest.Hex()
	}
	img, err := w.image(config, layers, listed)
	if err != nil {
		return resolved{}, err
	}
	return resolved{*img, members}, nil
}

// blob loads and verifies a small blob.
func (w *walk) blob(d Descriptor) ([]byte, error) {
	if err := d.Digest.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if d.Size < 0 || d.Size > MaxConfig {
		return nil, fmt.Errorf("%w: blob %s of %d bytes where a manifest or config should be", ErrTooLarge, d.Digest, d.Size)
	}
	b, err := w.load(blobDir + d.Digest.Hex())
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != d.Size {
		return nil, fmt.Errorf("blob %s: %w: %d bytes, %d were announced", d.Digest, ErrMismatch, len(b), d.Size)
	}
	if got := digest.Of(b); got != d.Digest {
		return nil, fmt.Errorf("blob %s: %w: it is %s", d.Digest, ErrMismatch, got)
	}
	return b, nil
}
