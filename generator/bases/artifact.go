package bases

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/generator/sbom"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// Artifact is the content of an artifact, in temporary files.
type Artifact struct {
	Path      string
	Name      string // of the artifact
	Meta      *artifact.Metadata
	members   map[image.Digest][]payloadMember // of the images payload
	Manifests map[string]*sbom.File            // by path
}

// payloadMember is one way in which an image is in an artifact.
type payloadMember struct {
	kind artifact.Kind
	file string
}

// Read reads an artifact to its end, which verifies it.
func (b *Builder) Read(ctx context.Context, path string) (*Artifact, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := mender.NewReader(metered.Reader(ctx, f, nil), mender.ReadOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if t := r.Header().PayloadType; t != mender.PayloadTypeApp {
		return nil, fmt.Errorf("%s: %w: its payload type is %q", path, ErrNotApp, t)
	}
	rel := &Artifact{Path: path, Name: r.Header().Name, members: map[image.Digest][]payloadMember{}}
	if rel.Meta, _, err = artifact.ParseMetadata(r.Header().MetaData); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rel, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		switch file.Name {
		case artifact.ImagesPayload:
			err = b.readImages(rel, r)
		case artifact.ManifestsPayload:
			rel.Manifests, err = b.readManifestFiles(r)
		}
		if err != nil {
			return nil, &DamagedError{fmt.Errorf("%s: %s: %w", path, file.Name, err)}
		}
	}
}

func (b *Builder) readImages(rel *Artifact, r io.Reader) error {
	return artifact.ReadImages(r, artifact.ReadOptions{SpoolDir: b.Temp}, func(info artifact.ImageInfo, content io.Reader) error {
		f, err := os.CreateTemp(b.Temp, "member-*")
		if err != nil {
			return &write.Error{Err: err}
		}
		_, err = io.Copy(f, content)
		if cerr := f.Close(); err == nil && cerr != nil {
			err = &write.Error{Err: cerr}
		}
		m := payloadMember{kind: info.Kind, file: f.Name()}
		rel.members[info.Digest] = append(rel.members[info.Digest], m)
		return err
	})
}

// readManifestFiles describes the files of the manifests payload.
func (b *Builder) readManifestFiles(r io.Reader) (map[string]*sbom.File, error) {
	dir, err := os.MkdirTemp(b.Temp, "manifests-*")
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	defer root.Close()
	if _, err := artifact.ReadManifests(r, root, artifact.ManifestLimits{}); err != nil {
		return nil, err
	}
	files := map[string]*sbom.File{}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := &sbom.File{Path: path, Type: tar.TypeReg, Mode: int64(info.Mode().Perm())}
		if d.Type()&fs.ModeSymlink != 0 {
			f.Type = tar.TypeSymlink
			f.Link, err = root.Readlink(path)
		} else {
			var b []byte
			b, err = root.ReadFile(path)
			f.Size, f.Sum = int64(len(b)), sha256.Sum256(b)
		}
		files[filepath.ToSlash(path)] = f
		return err
	})
	return files, err
}

// Image puts together an image of the release, as far as it is there or c has
// what it builds on. It returns a *source.Error that says what is needed if it
// is not.
func (b *Builder) Image(ctx context.Context, rel *Artifact, comp artifact.Component, c *Contents) (*image.Image, error) {
	if c.Images[comp.Digest] != nil {
		return c.Images[comp.Digest], nil
	}
	members := rel.members[comp.Digest]
	for _, m := range members {
		if m.kind != artifact.KindFull {
			continue
		}
		a, err := image.OpenArchive(m.file)
		if err != nil {
			return nil, &DamagedError{fmt.Errorf("%s: %s: %w", rel.Path, comp.URL, err)}
		}
		defer a.Close()
		for _, img := range a.Images() {
			if img.ConfigDigest == comp.Digest || len(a.Images()) == 1 {
				local, err := b.local(ctx, comp.URL, img)
				if err != nil {
					return nil, err
				}
				return b.remember(c, comp, local)
			}
		}
	}
	for _, m := range members {
		if m.kind == artifact.KindShared {
			if err := b.shared(ctx, rel, comp, m, c); err != nil {
				return nil, err
			}
		}
		if m.kind != artifact.KindDelta {
			continue
		}
		img, err := b.rebuild(ctx, rel, comp, m, c)
		if img != nil || err != nil {
			return img, err
		}
	}
	return nil, b.needs(rel, comp)
}

// rebuild applies a delta; nil if c lacks what it needs.
func (b *Builder) rebuild(ctx context.Context, rel *Artifact, comp artifact.Component, m payloadMember, c *Contents) (*image.Image, error) {
	f, err := os.Open(m.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := decoder.New(f)
	if err != nil {
		return nil, &DamagedError{fmt.Errorf("%s: %s: %w", rel.Path, comp.URL, err)}
	}
	for _, base := range r.Header().Bases {
		if c.have[base.Digest] == nil {
			return nil, nil
		}
	}
	if _, lacks := c.lacks(r.Header()); lacks {
		return nil, nil
	}
	if err := b.Apply(ctx, c, r, rel.Path+": "+comp.URL, comp.URL); err != nil {
		return nil, err
	}
	img, err := c.MadeImage(r.Header())
	if err != nil {
		return nil, err
	}
	if img.ConfigDigest != comp.Digest {
		return nil, &DamagedError{Err: fmt.Errorf("%s: %s: the delta makes another image, %s", rel.Path, comp.URL, img.ConfigDigest)}
	}
	return b.remember(c, comp, img)
}

// remember adds an image, whose layers are files, to the old content.
func (b *Builder) remember(c *Contents, comp artifact.Component, img *image.Image) (*image.Image, error) {
	c.Images[comp.Digest] = img
	return img, b.Add(c, DeltaImage(comp.URL, img))
}

// needs returns what is missing to rebuild an image.
func (b *Builder) needs(rel *Artifact, comp artifact.Component) error {
	var bases []string
	for i := range max(1, len(comp.Variants)) {
		as := comp
		if len(comp.Variants) > 0 {
			as = comp.As(i)
		}
		for _, base := range as.Bases {
			bases = append(bases, fmt.Sprintf("%s (%s)", base.URL, base.Digest))
		}
	}
	e := &source.Error{Text: fmt.Sprintf("%s: the content of %s is not in it", rel.Path, comp.URL)}
	switch {
	case len(rel.members[comp.Digest]) == 0:
		e.Text = fmt.Sprintf("%s: %s is not in it", rel.Path, comp.URL)
		e.Hint = "give the image with --base"
	case len(bases) > 0:
		e.Text += ": it is a delta over " + strings.Join(bases, ", ")
		e.Hint = "give what it builds on, or an artifact that has it, with --base"
	default:
		e.Hint = "give the image itself with --base"
	}
	return e
}
