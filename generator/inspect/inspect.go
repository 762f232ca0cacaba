// Package inspect describes App Artifacts, with facts that it has verified.
package inspect

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/rebuild"
	"github.com/mender-app/mender-app/generator/source"
)

// Description is the content of an App Artifact, read from the file itself.
type Description struct {
	Path           string              `json:"path"`
	Bytes          int64               `json:"bytes"`
	Name           string              `json:"name"`
	Group          string              `json:"group,omitempty"`
	DeviceTypes    []string            `json:"device_types"`
	DependsNames   []string            `json:"depends_names,omitempty"`
	DependsGroups  []string            `json:"depends_groups,omitempty"`
	Provides       map[string]string   `json:"provides,omitempty"`
	Depends        map[string][]string `json:"depends,omitempty"`
	ClearsProvides []string            `json:"clears_provides,omitempty"`
	Compression    string              `json:"compression"`
	Signature      Signature           `json:"signature"`
	Statement      *SignedStatement    `json:"statement,omitempty"` // nil: there is none
	Scripts        []string            `json:"scripts,omitempty"`
	Metadata       json.RawMessage     `json:"metadata"` // as it is in the artifact
	Files          []FileDescription   `json:"files"`
	Images         []ImageDescription  `json:"images"`
	Manifests      []ManifestFile      `json:"manifests"`
	Reach          []manifests.Reach   `json:"reach,omitempty"` // what services reach beyond what is shipped
	Warnings       []string            `json:"warnings,omitempty"`

	meta *artifact.Metadata
}

// Parsed is Metadata, parsed.
func (d Description) Parsed() *artifact.Metadata { return d.meta }

// Signature says whether an artifact is signed, and whether a given key verified
// it.
type Signature string

// The values of Signature.
const (
	Unsigned   Signature = "none"
	Unverified Signature = "unverified" // signed; no key was given
	Verified   Signature = "verified"
)

// SignedStatement is what the maker of the application signed. It agrees with
// the metadata and the manifests.
type SignedStatement struct {
	Signature Signature           `json:"signature"` // Verified by a given key, or Unverified
	Text      statement.Statement `json:"text"`
}

// FileDescription is one file of the payload; its checksum was verified.
type FileDescription struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// ImageDescription is one image of the images payload.
type ImageDescription struct {
	URL      string             `json:"url"`
	Type     string             `json:"type,omitempty"` // of a file; an image has none
	Also     []string           `json:"also,omitempty"` // its further names
	Digest   digest.Digest      `json:"digest"`
	Platform string             `json:"platform,omitempty"`
	Format   string             `json:"format"` // full, delta, variants, reference delta, reference deep delta
	Current  string             `json:"current,omitempty"`
	Bytes    int64              `json:"bytes"` // of image.img or image.delta
	Bases    []artifact.Base    `json:"bases,omitempty"`
	Layers   []LayerDescription `json:"layers,omitempty"`
	// Variants are the ways an image of the format variants travels in, and
	// SharedBytes those that several of them need. Bytes is all of them together.
	Variants    []VariantDescription `json:"variants,omitempty"`
	SharedBytes int64                `json:"shared_bytes,omitempty"`
}

// VariantDescription is one way of several in which an image travels.
type VariantDescription struct {
	Format string             `json:"format"`
	Bases  []artifact.Base    `json:"bases,omitempty"`
	Shared bool               `json:"shared,omitempty"` // it needs the shared content
	Bytes  int64              `json:"bytes"`            // of its own member
	Temp   int64              `json:"temp"`
	Memory int64              `json:"memory"`
	Engine int64              `json:"engine"`
	Layers []LayerDescription `json:"layers,omitempty"`
}

// LayerDescription is one layer, the base first.
type LayerDescription struct {
	DiffID   digest.Digest `json:"diff_id"`
	Size     int64         `json:"size"` // uncompressed; -1 if the artifact does not say
	Encoding string        `json:"encoding"`
	Bytes    int64         `json:"bytes"` // in the payload; -1 if the artifact does not say
}

// ManifestFile is one file of the manifests payload.
type ManifestFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Link string `json:"link,omitempty"`
}

// Artifact reads an artifact's file to its end. It returns only verified facts: it
// checks the checksums of the container, the digests of full images and of their
// layers, and the signature if keys are given. The content of a delta can be verified
// only with its bases.
func Artifact(ctx context.Context, path string, keys []crypto.PublicKey, tempDir string) (*Description, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Stream(ctx, f, path, keys, tempDir)
}

// Stream is Artifact for what a reader gives, to its end. name is its name in errors
// and in the description.
func Stream(ctx context.Context, stream io.Reader, name string, keys []crypto.PublicKey, tempDir string) (*Description, error) {
	i := inspection{Description: &Description{Path: name}}
	counted := metered.Reader(ctx, stream, func(n int64) { i.Bytes += n })
	r, err := mender.NewReader(counted, mender.ReadOptions{PublicKeys: keys})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if i.temp, err = os.MkdirTemp(tempDir, ".app-gen-*"); err != nil {
		return nil, &source.WriteError{Err: err}
	}
	defer os.RemoveAll(i.temp)
	if err := i.header(r.Header(), keys); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		i.Files = append(i.Files, FileDescription{file.Name, file.Size, file.Digest})
		if err := i.file(ctx, file.Name, r); err != nil {
			return nil, &rebuild.DamagedError{Err: fmt.Errorf("%s: %s: %w", name, file.Name, err)}
		}
	}
	if _, err := io.Copy(io.Discard, counted); err != nil { // the padding, for the size
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return i.Description, nil
}

type inspection struct {
	*Description
	temp string
}

func (i *inspection) header(h *mender.Header, keys []crypto.PublicKey) error {
	if h.PayloadType != mender.PayloadTypeApp {
		return fmt.Errorf("%w: its payload type is %q, that of applications is %q", rebuild.ErrNotApp, h.PayloadType, mender.PayloadTypeApp)
	}
	d := i.Description
	d.Name, d.Group, d.DeviceTypes = h.Name, h.Group, h.DeviceTypes
	d.DependsNames, d.DependsGroups = h.DependsNames, h.DependsGroups
	d.Provides, d.Depends, d.ClearsProvides = h.Provides, h.Depends, h.ClearsProvides
	d.Compression, d.Scripts = string(h.Compression), h.Scripts
	switch {
	case !h.Signed:
		d.Signature = Unsigned
	case len(keys) > 0:
		d.Signature = Verified
	default:
		d.Signature = Unverified
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, h.MetaData); err == nil {
		d.Metadata = compact.Bytes()
	}
	m, warnings, err := artifact.ParseMetadata(h.MetaData)
	if err != nil {
		return err
	}
	d.meta, d.Warnings = m, warnings
	if m.Statement == nil {
		return nil
	}
	s, err := statement.Parse(m.Statement)
	if err != nil {
		return err
	}
	d.Statement = &SignedStatement{Signature: Unverified, Text: s.Statement}
	if slices.ContainsFunc(keys, s.SignedBy) {
		d.Statement.Signature = Verified
	}
	return s.Check(m)
}

func (i *inspection) file(ctx context.Context, name string, r io.Reader) error {
	switch name {
	case artifact.ImagesPayload:
		o := artifact.ReadOptions{SpoolDir: i.temp}
		if i.meta.Sizes != nil {
			o.MaxBytes = i.meta.Sizes.ImagesPayload
		}
		return artifact.ReadImages(r, o, i.image)
	case artifact.ManifestsPayload:
		return i.manifests(ctx, r)
	}
	i.Warnings = append(i.Warnings, name+": a file that no reader knows")
	return nil
}

func (i *inspection) manifests(ctx context.Context, r io.Reader) error {
	dir, err := os.MkdirTemp(i.temp, "manifests-*")
	if err != nil {
		return &source.WriteError{Err: err}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return &source.WriteError{Err: err}
	}
	defer root.Close()
	var limits artifact.ManifestLimits
	if i.meta.Sizes != nil {
		limits.MaxBytes = i.meta.Sizes.ManifestsPayload
	}
	digest, err := artifact.ReadManifests(r, root, limits)
	if err != nil {
		return err
	}
	if s := i.Statement; s != nil && s.Text.Manifests != digest {
		return fmt.Errorf("%w: its manifests are %s, and the artifact's %s", statement.ErrStatement, s.Text.Manifests, digest)
	}
	i.reach(ctx, dir)
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := ManifestFile{Path: path, Size: info.Size()}
		if d.Type()&fs.ModeSymlink != 0 {
			f.Size = 0
			if f.Link, err = root.Readlink(path); err != nil {
				return err
			}
		}
		i.Manifests = append(i.Manifests, f)
		return nil
	})
}

// reach finds out what the services reach. If the manifests cannot be read, it
// adds a warning; the rest of the artifact is still described.
func (i *inspection) reach(ctx context.Context, dir string) {
	var err error
	switch i.meta.Orchestrator {
	case manifests.DockerCompose:
		i.Reach, err = manifests.ComposeReach(ctx, dir)
	case manifests.K8s:
		i.Reach, err = manifests.KubernetesReach(dir)
	default:
		err = fmt.Errorf("the orchestrator %s is not one of ours", i.meta.Orchestrator)
	}
	if err != nil {
		i.Warnings = append(i.Warnings, "what the services can reach is not known: "+err.Error())
	}
}

// variant reads one member of an image that travels in several ways.
func (i *inspection) variant(info artifact.ImageInfo, content io.Reader) error {
	var d *ImageDescription
	if n := len(i.Images); n > 0 && i.Images[n-1].Digest == info.Digest {
		d = &i.Images[n-1]
	} else {
		i.Images = append(i.Images, ImageDescription{URL: info.URLNew, Digest: info.Digest, Format: string(artifact.FormatVariants)})
		d = &i.Images[len(i.Images)-1]
		for _, c := range i.meta.Components {
			if c.Digest != info.Digest {
				continue
			}
			if c.URL != info.URLNew {
				d.Also = append(d.Also, c.URL)
			}
			d.Platform = c.Platform
		}
		d.Type = i.fileType(info)
	}
	d.Bytes += info.Size
	if info.Kind == artifact.KindShared {
		d.SharedBytes = info.Size
		_, err := decoder.New(content)
		return err
	}
	var own ImageDescription
	v := VariantDescription{Format: string(artifact.FormatFull), Bytes: info.Size}
	var err error
	if info.Kind == artifact.KindFull {
		err = own.whole(i.fileType(info), info, content)
	} else {
		v.Format = string(artifact.FormatDelta)
		err = own.delta(content)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", info.URLNew, err)
	}
	v.Layers = own.Layers
	for _, c := range i.meta.Components {
		n := len(d.Variants)
		if c.Digest != info.Digest || n >= len(c.Variants) {
			continue
		}
		m := c.Variants[n]
		v.Bases, v.Shared, v.Temp, v.Memory, v.Engine = m.Bases, m.Shared, m.Temp, m.Memory, m.Engine
		for k := range v.Layers {
			if k < len(m.Layers) {
				v.Layers[k].Bytes = m.Layers[k].Bytes
			}
		}
	}
	d.Variants = append(d.Variants, v)
	return nil
}

func (i *inspection) image(info artifact.ImageInfo, content io.Reader) error {
	if info.Kind == artifact.KindShared || info.Variant != 0 {
		return i.variant(info, content)
	}
	d := ImageDescription{URL: info.URLNew, Type: i.fileType(info), Digest: info.Digest, Bytes: info.Size}
	if info.URLCurrent != info.URLNew || info.SumCurrent != "" && info.SumCurrent != info.SumNew {
		d.Current = info.URLCurrent
	}
	var err error
	switch info.Kind {
	case artifact.KindFull:
		d.Format = string(artifact.FormatFull)
		err = d.whole(i.fileType(info), info, content)
	case artifact.KindDelta:
		d.Format = string(artifact.FormatDelta)
		err = d.delta(content)
	case artifact.KindReferenceDelta:
		d.Format = "reference delta"
	case artifact.KindReferenceDeepDelta:
		d.Format = "reference deep delta"
	}
	if err != nil {
		return fmt.Errorf("%s: %w", info.URLNew, err)
	}
	for _, c := range i.meta.Components {
		if c.Digest != info.Digest {
			continue
		}
		if c.URL != info.URLNew {
			d.Also = append(d.Also, c.URL)
		}
		d.Platform, d.Bases = c.Platform, c.Bases
		for n := range d.Layers {
			if n < len(c.Layers) && c.Layers[n].DiffID == d.Layers[n].DiffID {
				d.Layers[n].Bytes = c.Layers[n].Bytes
			}
		}
	}
	i.Images = append(i.Images, d)
	return nil
}

// fileType is the type of a component of the payload that is a file; "" for images.
func (i *inspection) fileType(info artifact.ImageInfo) string {
	for _, c := range i.meta.Components {
		if c.Digest == info.Digest && c.IsFile() {
			return c.Type
		}
	}
	return ""
}

// whole reads a whole image, or a file of the type.
func (d *ImageDescription) whole(fileType string, info artifact.ImageInfo, r io.Reader) error {
	if fileType == "" {
		return d.full(info, r)
	}
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return err
	}
	if got := digest.OfHash(h); got != info.Digest {
		return fmt.Errorf("the file is %s, and should be %s", got, info.Digest)
	}
	return nil
}

// full reads the whole image: every layer is compared with its diffID.
func (d *ImageDescription) full(info artifact.ImageInfo, r io.Reader) error {
	images, err := image.ReadStream(r, image.Limits{}, image.Handler{})
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return errors.New("there is no image in its archive")
	}
	img := images[0]
	for _, other := range images {
		if other.ConfigDigest == info.Digest {
			img = other
		}
	}
	d.Platform = img.Platform.String()
	for n, l := range img.Layers {
		e := LayerDescription{DiffID: l.DiffID, Size: l.Size, Encoding: string(artifact.EncodingVerbatim), Bytes: l.Size}
		if n < len(img.Members) && img.Members[n] == "" {
			e.Encoding, e.Bytes = string(artifact.EncodingOmitted), 0
		}
		d.Layers = append(d.Layers, e)
	}
	return nil
}

func (d *ImageDescription) delta(r io.Reader) error {
	dr, err := decoder.New(r)
	if err != nil {
		return err
	}
	for _, o := range dr.Header().Objects {
		if o.Kind != delta.Tar {
			continue
		}
		l := LayerDescription{DiffID: o.Digest, Size: o.Size, Encoding: string(o.Encoding), Bytes: -1}
		if o.Encoding == delta.Omitted {
			l.Bytes = 0
		}
		d.Layers = append(d.Layers, l)
	}
	return nil
}
