// Package inspect describes App Artifacts, with facts that it has verified, and the
// difference between two. It writes each as a report's data and as one page for a
// browser.
package inspect

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/write"
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
	Revocations    *SignedRevocations  `json:"revocations,omitempty"`
	Scripts        []string            `json:"scripts,omitempty"`
	Metadata       json.RawMessage     `json:"metadata"` // as it is in the artifact
	Files          []FileDescription   `json:"files"`
	Images         []ImageDescription  `json:"images"`
	Manifests      []ManifestFile      `json:"manifests"`
	Reach          []manifests.Reach   `json:"reach,omitempty"`     // what services reach beyond what is shipped
	Times          *budget.Times       `json:"times,omitempty"`     // that a device takes to have it; set by SetLink
	Level          string              `json:"level,omitempty"`     // that a device must give the application: confined, host-network or trusted
	LevelFor       []string            `json:"level_for,omitempty"` // what needs it
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

// SignedStatement is the statement that the application's maker signed. It agrees with
// the metadata, the manifests and the header.
type SignedStatement struct {
	Signature  Signature           `json:"signature"`  // Verified by a given key, or Unverified
	Signatures int                 `json:"signatures"` // how many it has
	Digest     digest.Digest       `json:"digest"`     // which a list of revocations can name
	Text       statement.Statement `json:"text"`
}

// SignedRevocations is the list of what no longer counts that the artifact brings.
type SignedRevocations struct {
	Signature  Signature             `json:"signature"`
	Signatures int                   `json:"signatures"`
	Text       statement.Revocations `json:"text"`
}

// FileDescription is one file of the payload; its checksum was verified.
type FileDescription struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// ManifestFile is one file of the manifests payload.
type ManifestFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Link string `json:"link,omitempty"`
}

// Artifact reads an artifact's file to its end. It returns only verified facts: it
// checks the checksums of the container, the digests of full images, of deltas over
// nothing and of their layers, and the signature if keys are given. The content of another
// delta can be verified only with its bases.
func Artifact(ctx context.Context, path string, keys []crypto.PublicKey, tempDir string) (*Description, error) {
	return file(ctx, &inspection{Description: &Description{Path: path}}, keys, tempDir)
}

// Made is Artifact for an artifact that this process has made: its deltas were proved, and
// are not decoded again.
func Made(ctx context.Context, path string, keys []crypto.PublicKey, tempDir string) (*Description, error) {
	return file(ctx, &inspection{Description: &Description{Path: path}, proved: true}, keys, tempDir)
}

func file(ctx context.Context, i *inspection, keys []crypto.PublicKey, tempDir string) (*Description, error) {
	f, err := os.Open(i.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return i.stream(ctx, f, keys, tempDir)
}

// Stream is Artifact for what a reader gives, to its end. name is its name in errors
// and in the description.
func Stream(ctx context.Context, stream io.Reader, name string, keys []crypto.PublicKey, tempDir string) (*Description, error) {
	i := inspection{Description: &Description{Path: name}}
	return i.stream(ctx, stream, keys, tempDir)
}

func (i *inspection) stream(ctx context.Context, stream io.Reader, keys []crypto.PublicKey, tempDir string) (*Description, error) {
	name := i.Path
	counted := metered.Reader(ctx, stream, func(n int64) { i.Bytes += n })
	r, err := mender.NewReader(counted, mender.ReadOptions{PublicKeys: keys})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if i.temp, err = scratch.Dir(tempDir, scratch.HostPrefix); err != nil {
		return nil, &write.Error{Err: err}
	}
	defer scratch.Remove(i.temp)
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
			return nil, &bases.DamagedError{Err: fmt.Errorf("%s: %s: %w", name, file.Name, err)}
		}
	}
	if _, err := io.Copy(io.Discard, counted); err != nil { // the padding, for the size
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return i.Description, nil
}

type inspection struct {
	*Description
	temp   string
	proved bool // deltas are not decoded
}

func (i *inspection) header(h *mender.Header, keys []crypto.PublicKey) error {
	if h.PayloadType != mender.PayloadTypeApp {
		return fmt.Errorf("%w: its payload type is %q, that of applications is %q", bases.ErrNotApp, h.PayloadType, mender.PayloadTypeApp)
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
	if m.Revocations != nil {
		r, err := statement.ParseRevocations(m.Revocations)
		if err != nil {
			return err
		}
		d.Revocations = &SignedRevocations{Signature: Unverified, Signatures: r.Signatures(), Text: r.Revocations}
		if slices.ContainsFunc(keys, r.SignedBy) {
			d.Revocations.Signature = Verified
		}
	}
	if m.Statement == nil {
		return nil
	}
	s, err := statement.Parse(m.Statement)
	if err != nil {
		return err
	}
	d.Statement = &SignedStatement{Signature: Unverified, Signatures: s.Signatures(), Digest: s.Digest(), Text: s.Statement}
	if slices.ContainsFunc(keys, s.SignedBy) {
		d.Statement.Signature = Verified
	}
	if err := s.Check(m); err != nil || s.Reach == nil {
		return err
	}
	return s.Reach.Covers(statement.ReachOf(h))
}

func (i *inspection) file(ctx context.Context, name string, r io.Reader) error {
	switch name {
	case artifact.ImagesPayload:
		o := artifact.ReadOptions{SpoolDir: i.temp}
		if i.meta.Sizes != nil {
			o.MaxBytes = i.meta.Sizes.ImagesPayload
		}
		return artifact.ReadImages(r, o, func(info artifact.ImageInfo, content io.Reader) error { return i.image(ctx, info, content) })
	case artifact.ManifestsPayload:
		return i.manifests(ctx, r)
	}
	i.Warnings = append(i.Warnings, name+": a file that no reader knows")
	return nil
}

func (i *inspection) manifests(ctx context.Context, r io.Reader) error {
	dir, err := os.MkdirTemp(i.temp, "manifests-*")
	if err != nil {
		return &write.Error{Err: err}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return &write.Error{Err: err}
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

// Bytes writes a number of bytes for a person; ? for a negative one, which is not
// known.
func Bytes(n int64) string {
	switch {
	case n < 0:
		return "?"
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1000*1000*1000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// reach finds out what the services reach. If the manifests cannot be read, it
// adds a warning; the rest of the artifact is still described.
func (i *inspection) reach(ctx context.Context, dir string) {
	var err error
	switch i.meta.Orchestrator {
	case manifests.DockerCompose:
		if i.Reach, err = manifests.ComposeReach(ctx, dir); err == nil {
			i.Level, i.LevelFor, err = manifests.ComposeLevel(ctx, dir)
		}
	case manifests.K8s:
		if i.Reach, err = manifests.KubernetesReach(dir); err == nil {
			i.Level, i.LevelFor, err = manifests.KubernetesLevel(dir, i.meta.Env["K8S_NAMESPACE"])
		}
	default:
		err = fmt.Errorf("the orchestrator %s is not one of ours", i.meta.Orchestrator)
	}
	if err != nil {
		i.Warnings = append(i.Warnings, "what the services can reach is not known: "+err.Error())
	}
}
