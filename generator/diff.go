package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/inventory"
	"github.com/mender-app/mender-app/generator/rebuild"
	"github.com/mender-app/mender-app/generator/source"
)

// Difference is what changed between two releases.
type Difference struct {
	Old       string            `json:"old"` // names of the artifacts
	New       string            `json:"new"`
	Images    []ImageDifference `json:"images"`
	Manifests []FileDifference  `json:"manifests,omitempty"`
	Warnings  []string          `json:"warnings,omitempty"`
	// Decoding is how long it took here to read the new release and decode its images.
	Decoding time.Duration `json:"-"`
}

// Change says what happened to something.
type Change string

// The values of Change.
const (
	Added   Change = "added"
	Removed Change = "removed"
	Changed Change = "changed"
	Same    Change = "same"
)

// ImageDifference is what changed in one image. Packages and Files are those of
// images that changed.
type ImageDifference struct {
	Change    Change              `json:"change"`
	Old       string              `json:"old,omitempty"` // its name
	New       string              `json:"new,omitempty"`
	OldDigest image.Digest        `json:"old_digest,omitempty"`
	NewDigest image.Digest        `json:"new_digest,omitempty"`
	Packages  []PackageDifference `json:"packages,omitempty"`
	Files     []FileDifference    `json:"files,omitempty"`
}

// PackageDifference is a package that changed. A package of several versions has
// an entry for each version that came or went.
type PackageDifference struct {
	Change Change `json:"change"`
	Type   string `json:"type"`
	Name   string `json:"name"`
	Old    string `json:"old,omitempty"` // version
	New    string `json:"new,omitempty"`
}

// FileDifference is a file that changed. Times do not count.
type FileDifference struct {
	Change Change `json:"change"`
	Path   string `json:"path"`
	Old    int64  `json:"old_size"`
	New    int64  `json:"new_size"`
}

// Diff compares the artifacts old and next. The images of each that the other
// does not have unchanged must be whole in them, or deltas whose bases are known:
// from old, from images earlier in the artifact, or from bases, each an artifact
// or anything source.Parse reads. Else the error says what is needed.
func Diff(ctx context.Context, old, next string, bases []string, o DeltaOptions) (*Difference, error) {
	h, err := newByHand(ctx, next, o)
	if err != nil {
		return nil, err
	}
	defer h.close()
	c := rebuild.NewContents()
	for _, b := range bases {
		if err := h.base(ctx, b, c); err != nil {
			return nil, fmt.Errorf("--base %s: %w", b, err)
		}
	}
	from, err := h.b.Read(ctx, old)
	if err != nil {
		return nil, err
	}
	to, err := h.b.Read(ctx, next)
	if err != nil {
		return nil, err
	}
	d := &Difference{Old: from.Name, New: to.Name, Manifests: compareFiles(from.Manifests, to.Manifests)}
	// An image of the old release may be the base of a delta. An image that cannot be
	// rebuilt is an error only if it is compared.
	missing := map[image.Digest]error{}
	for _, rel := range []*rebuild.Release{from, to} {
		begun := time.Now()
		for _, comp := range rel.Meta.ImageComponents() {
			_, err := h.b.Image(ctx, rel, comp, c)
			var needs *source.Error
			if errors.As(err, &needs) {
				missing[comp.Digest] = err
			} else if err != nil {
				return nil, err
			}
		}
		d.Decoding = time.Since(begun) // at last that of the new release
	}
	for _, p := range pairs(from.Meta.ImageComponents(), to.Meta.ImageComponents()) {
		diff, err := h.compare(p, c, missing, &d.Warnings)
		if err != nil {
			return nil, err
		}
		d.Images = append(d.Images, *diff)
	}
	return d, nil
}

// pair is an image of one release and the same image of another one; one of them
// may be nil.
type pair struct{ old, new *artifact.Component }

// pairs finds the image that each new one replaces: of the same name, else of the
// same repository, in their order.
func pairs(old, next []artifact.Component) []pair {
	taken := map[int]bool{}
	list := make([]pair, len(next))
	find := func(key func(string) string) {
		for i := range next {
			if list[i].new = &next[i]; list[i].old != nil {
				continue
			}
			for k := range old {
				if !taken[k] && key(old[k].URL) == key(next[i].URL) {
					list[i].old, taken[k] = &old[k], true
					break
				}
			}
		}
	}
	find(source.Normal)
	find(source.Repository)
	for k := range old {
		if !taken[k] {
			list = append(list, pair{old: &old[k]})
		}
	}
	return list
}

func (h *byHand) compare(p pair, c *rebuild.Contents, missing map[image.Digest]error, warnings *[]string) (*ImageDifference, error) {
	d := &ImageDifference{Change: Changed}
	if p.old != nil {
		d.Old, d.OldDigest = p.old.URL, p.old.Digest
	}
	if p.new != nil {
		d.New, d.NewDigest = p.new.URL, p.new.Digest
	}
	switch {
	case p.old == nil:
		d.Change = Added
		return d, nil
	case p.new == nil:
		d.Change = Removed
		return d, nil
	case d.OldDigest == d.NewDigest:
		d.Change = Same
		return d, nil
	}
	var trees [2]map[string]*inventory.File
	var packages [2][]inventory.Package
	for i, comp := range []*artifact.Component{p.old, p.new} {
		img := c.Images[comp.Digest]
		if img == nil {
			return nil, missing[comp.Digest]
		}
		tree, err := inventory.Read(h.ctx, img)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", comp.URL, err)
		}
		trees[i] = map[string]*inventory.File{}
		for _, path := range tree.Paths() {
			trees[i][path] = tree.File(path)
		}
		var told []string
		if packages[i], told, err = tree.Packages(h.ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", comp.URL, err)
		}
		for _, w := range told {
			*warnings = append(*warnings, comp.URL+": "+w)
		}
	}
	d.Files = compareFiles(trees[0], trees[1])
	d.Packages = comparePackages(packages[0], packages[1])
	return d, nil
}

// compareFiles lists the files that changed, sorted by path.
func compareFiles(old, next map[string]*inventory.File) (list []FileDifference) {
	for path, n := range next {
		switch o := old[path]; {
		case o == nil:
			list = append(list, FileDifference{Added, path, 0, n.Size})
		case !o.Same(n):
			list = append(list, FileDifference{Changed, path, o.Size, n.Size})
		}
	}
	for path, o := range old {
		if next[path] == nil {
			list = append(list, FileDifference{Removed, path, o.Size, 0})
		}
	}
	slices.SortFunc(list, func(a, b FileDifference) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// comparePackages lists the packages that changed, sorted by type and name.
func comparePackages(old, next []inventory.Package) (list []PackageDifference) {
	type name struct{ kind, name, arch string }
	versions := func(list []inventory.Package) map[name][]string {
		m := map[name][]string{}
		for _, p := range list {
			n := name{p.Type, p.Name, p.Arch}
			m[n] = append(m[n], p.Version)
		}
		return m
	}
	was, is := versions(old), versions(next)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for n := range all {
		gone := slices.DeleteFunc(slices.Clone(was[n]), func(v string) bool { return slices.Contains(is[n], v) })
		came := slices.DeleteFunc(slices.Clone(is[n]), func(v string) bool { return slices.Contains(was[n], v) })
		for i := range max(len(gone), len(came)) {
			p := PackageDifference{Change: Changed, Type: n.kind, Name: n.name}
			if i < len(gone) {
				p.Old = gone[i]
			} else {
				p.Change = Added
			}
			if i < len(came) {
				p.New = came[i]
			} else {
				p.Change = Removed
			}
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b PackageDifference) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
	return list
}
