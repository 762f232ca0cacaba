package inspect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/sbom"
	"github.com/mender-app/mender-app/generator/source"
)

// Difference lists the changes between two releases.
type Difference struct {
	Old       string            `json:"old"` // names of the artifacts
	New       string            `json:"new"`
	Images    []ImageDifference `json:"images"`
	Manifests []FileChange      `json:"manifests,omitempty"`
	Warnings  []string          `json:"warnings,omitempty"`
	// Decoding is how long it took here to read the new release and decode its images.
	Decoding time.Duration `json:"-"`
}

// ImageDifference lists the changes of one image. Packages and Files are those of
// images that changed.
type ImageDifference struct {
	Change    Change          `json:"change"`
	Old       string          `json:"old,omitempty"` // its name
	New       string          `json:"new,omitempty"`
	OldDigest image.Digest    `json:"old_digest,omitempty"`
	NewDigest image.Digest    `json:"new_digest,omitempty"`
	Packages  []PackageChange `json:"packages,omitempty"`
	Files     []FileChange    `json:"files,omitempty"`
}

// Diff compares the artifacts old and next. The images of each that the other
// does not have unchanged must be whole in them, or deltas whose bases are known:
// from old, from images earlier in the artifact, or from over, each an artifact
// or anything source.Parse reads. Else the error says what is needed.
// Temporary files lie beside next if access names no directory for them.
func Diff(ctx context.Context, old, next string, over []string, access bases.Access) (*Difference, error) {
	if access.TempDir == "" {
		access.TempDir = filepath.Dir(next)
	}
	a, err := bases.NewArguments(access)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	c := bases.NewContents()
	for _, b := range over {
		if err := a.AddTo(ctx, c, b); err != nil {
			return nil, fmt.Errorf("--base %s: %w", b, err)
		}
	}
	from, err := a.Read(ctx, old)
	if err != nil {
		return nil, err
	}
	to, err := a.Read(ctx, next)
	if err != nil {
		return nil, err
	}
	d := &Difference{Old: from.Name, New: to.Name, Manifests: changedFiles(from.Manifests, to.Manifests)}
	// An image of the old release may be the base of a delta. An image that cannot be
	// rebuilt is an error only if it is compared.
	missing := map[image.Digest]error{}
	for _, rel := range []*bases.Artifact{from, to} {
		begun := time.Now()
		for _, comp := range rel.Meta.ImageComponents() {
			_, err := a.Image(ctx, rel, comp, c)
			var needs *source.Error
			if errors.As(err, &needs) {
				missing[comp.Digest] = err
			} else if err != nil {
				return nil, err
			}
		}
		d.Decoding = time.Since(begun) // at last that of the new release
	}
	for _, p := range pairComponents(from.Meta.ImageComponents(), to.Meta.ImageComponents()) {
		diff, err := compareImages(ctx, p, c, missing, &d.Warnings)
		if err != nil {
			return nil, err
		}
		d.Images = append(d.Images, *diff)
	}
	return d, nil
}

func compareImages(ctx context.Context, p componentPair, c *bases.Contents, missing map[image.Digest]error, warnings *[]string) (*ImageDifference, error) {
	d := &ImageDifference{Change: Changed}
	if p.Old != nil {
		d.Old, d.OldDigest = p.Old.URL, p.Old.Digest
	}
	if p.New != nil {
		d.New, d.NewDigest = p.New.URL, p.New.Digest
	}
	switch {
	case p.Old == nil:
		d.Change = Added
		return d, nil
	case p.New == nil:
		d.Change = Removed
		return d, nil
	case d.OldDigest == d.NewDigest:
		d.Change = Same
		return d, nil
	}
	var trees [2]map[string]*sbom.File
	var packages [2][]sbom.Package
	for i, comp := range []*artifact.Component{p.Old, p.New} {
		img := c.Images[comp.Digest]
		if img == nil {
			return nil, missing[comp.Digest]
		}
		tree, err := sbom.ReadTree(ctx, img)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", comp.URL, err)
		}
		trees[i] = map[string]*sbom.File{}
		for _, path := range tree.Paths() {
			trees[i][path] = tree.File(path)
		}
		var told []string
		if packages[i], told, err = tree.Packages(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", comp.URL, err)
		}
		for _, w := range told {
			*warnings = append(*warnings, comp.URL+": "+w)
		}
	}
	d.Files = changedFiles(trees[0], trees[1])
	d.Packages = changedPackages(packages[0], packages[1])
	return d, nil
}
