package generator

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
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/generator/inventory"
	"github.com/mender-app/mender-app/generator/source"
)

// release is what an artifact holds, in temporary files.
type release struct {
	path      string
	name      string
	meta      *artifact.Metadata
	members   map[image.Digest][]releaseMember // of the images payload
	manifests map[string]*inventory.File       // by path
}

// releaseMember is one way in which an image is in an artifact.
type releaseMember struct {
	kind artifact.Kind
	file string
	// alone is false for a delta that needs content which other members of the
	// artifact make.
	alone bool
}

// readRelease reads an artifact to its end, which verifies it.
func (h *byHand) readRelease(path string) (*release, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := mender.NewReader(metered.Reader(h.ctx, f, nil), mender.ReadOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if t := r.Header().PayloadType; t != mender.PayloadTypeApp {
		return nil, fmt.Errorf("%s: %w: its payload type is %q", path, ErrNotApp, t)
	}
	rel := &release{path: path, name: r.Header().Name, members: map[image.Digest][]releaseMember{}}
	if rel.meta, _, err = artifact.ParseMetadata(r.Header().MetaData); err != nil {
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
			err = h.readImages(rel, r)
		case artifact.ManifestsPayload:
			rel.manifests, err = h.readManifestFiles(r)
		}
		if err != nil {
			return nil, &DamagedError{fmt.Errorf("%s: %s: %w", path, file.Name, err)}
		}
	}
}

func (h *byHand) readImages(rel *release, r io.Reader) error {
	shared := map[image.Digest]bool{}
	return artifact.ReadImages(r, artifact.ReadOptions{SpoolDir: h.temp}, func(info artifact.ImageInfo, content io.Reader) error {
		f, err := os.CreateTemp(h.temp, "member-*")
		if err != nil {
			return &WriteError{err}
		}
		_, err = io.Copy(f, content)
		if cerr := f.Close(); err == nil && cerr != nil {
			err = &WriteError{cerr}
		}
		shared[info.Digest] = shared[info.Digest] || info.Kind == artifact.KindShared
		m := releaseMember{kind: info.Kind, file: f.Name(), alone: !shared[info.Digest]}
		rel.members[info.Digest] = append(rel.members[info.Digest], m)
		return err
	})
}

// readManifestFiles describes the files of the manifests payload.
func (h *byHand) readManifestFiles(r io.Reader) (map[string]*inventory.File, error) {
	dir, err := os.MkdirTemp(h.temp, "manifests-*")
	if err != nil {
		return nil, &WriteError{err}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &WriteError{err}
	}
	defer root.Close()
	if _, err := artifact.ReadManifests(r, root, artifact.ManifestLimits{}); err != nil {
		return nil, err
	}
	files := map[string]*inventory.File{}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := &inventory.File{Path: path, Type: tar.TypeReg, Mode: int64(info.Mode().Perm())}
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

// imageOf puts together an image of the release, as far as it is there or c has
// what it builds on. It returns a *source.Error that says what is needed if it
// is not.
func (h *byHand) imageOf(rel *release, comp artifact.Component, c *contents) (*image.Image, error) {
	if c.images[comp.Digest] != nil {
		return c.images[comp.Digest], nil
	}
	members := rel.members[comp.Digest]
	for _, m := range members {
		if m.kind != artifact.KindFull {
			continue
		}
		a, err := image.OpenArchive(m.file)
		if err != nil {
			return nil, &DamagedError{fmt.Errorf("%s: %s: %w", rel.path, comp.URL, err)}
		}
		defer a.Close()
		for _, img := range a.Images() {
			if img.ConfigDigest == comp.Digest || len(a.Images()) == 1 {
				local, err := h.local(comp.URL, img)
				if err != nil {
					return nil, err
				}
				return h.remember(c, comp, local)
			}
		}
	}
	for _, m := range members {
		if m.kind != artifact.KindDelta || !m.alone {
			continue
		}
		img, err := h.rebuild(rel, comp, m, c)
		if img != nil || err != nil {
			return img, err
		}
	}
	return nil, h.needs(rel, comp)
}

// rebuild applies a delta; nil if c lacks what it needs.
func (h *byHand) rebuild(rel *release, comp artifact.Component, m releaseMember, c *contents) (*image.Image, error) {
	f, err := os.Open(m.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := decoder.New(f)
	if err != nil {
		return nil, &DamagedError{fmt.Errorf("%s: %s: %w", rel.path, comp.URL, err)}
	}
	for _, b := range r.Header().Bases {
		if c.have[b.Digest] == nil {
			return nil, nil
		}
	}
	if _, lacks := c.lacks(r.Header()); lacks {
		return nil, nil
	}
	if err := h.apply(c, r, rel.path+": "+comp.URL, comp.URL); err != nil {
		return nil, err
	}
	img, err := madeImage(r.Header(), c.have)
	if err != nil {
		return nil, err
	}
	return h.remember(c, comp, img)
}

// remember adds an image, whose layers are files, to the old content.
func (h *byHand) remember(c *contents, comp artifact.Component, img *image.Image) (*image.Image, error) {
	c.images[comp.Digest] = img
	return img, h.add(c, deltaImage(comp.URL, img))
}

// needs says what an image cannot be put together without.
func (h *byHand) needs(rel *release, comp artifact.Component) error {
	var bases []string
	for i := range max(1, len(comp.Variants)) {
		as := comp
		if len(comp.Variants) > 0 {
			as = comp.As(i)
		}
		for _, b := range as.Bases {
			bases = append(bases, fmt.Sprintf("%s (%s)", b.URL, b.Digest))
		}
	}
	e := &source.Error{Text: fmt.Sprintf("%s: the content of %s is not in it", rel.path, comp.URL)}
	switch {
	case len(rel.members[comp.Digest]) == 0:
		e.Text = fmt.Sprintf("%s: %s is not in it", rel.path, comp.URL)
		e.Hint = "give the image with --base"
	case len(bases) > 0:
		e.Text += ": it is a delta over " + strings.Join(bases, ", ")
		e.Hint = "give what it builds on, or an artifact that has it, with --base"
	default:
		e.Hint = "give the image itself with --base"
	}
	if len(comp.Variants) > 1 {
		e.Hint = "give the image itself with --base: one that travels for several bases is not put together here"
	}
	return e
}

// base adds what --base names: an artifact with all its images, or one image.
func (h *byHand) base(ctx context.Context, arg string, c *contents) error {
	path := strings.TrimPrefix(arg, string(source.Artifact)+":")
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && strings.HasSuffix(path, ".mender") {
		rel, err := h.readRelease(path)
		if err != nil {
			return err
		}
		for _, comp := range rel.meta.Components {
			if _, err := h.imageOf(rel, comp, c); err != nil {
				var src *source.Error
				if !errors.As(err, &src) { // what lacks is said where it is needed
					return err
				}
			}
		}
		return nil
	}
	im, err := h.open(arg)
	if err != nil {
		return err
	}
	if err := h.add(c, im); err != nil {
		return err
	}
	header := delta.Header{}
	for i, o := range im.Objects {
		header.Objects = append(header.Objects, delta.ObjectInfo{Index: i, Digest: o.Digest, Size: o.Size, Kind: o.Kind})
	}
	img, err := madeImage(header, c.have)
	if err != nil {
		return fmt.Errorf("%s: %w", arg, err)
	}
	c.images[img.ConfigDigest] = img
	return nil
}
