package inspect

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/generator/sbom"
	"github.com/mender-app/mender-app/generator/source"
)

// Change says what happened to something.
type Change string

// The values of Change.
const (
	Added   Change = "added"
	Removed Change = "removed"
	Changed Change = "changed"
	Same    Change = "same"
)

// PackageChange is a package that changed. A package of several versions has
// an entry for each version that came or went.
type PackageChange struct {
	Change Change `json:"change"`
	Type   string `json:"type"`
	Name   string `json:"name"`
	Old    string `json:"old,omitempty"` // version
	New    string `json:"new,omitempty"`
}

// FileChange is a file that changed. Times do not count.
type FileChange struct {
	Change Change `json:"change"`
	Path   string `json:"path"`
	Old    int64  `json:"old_size"`
	New    int64  `json:"new_size"`
}

// changedFiles lists the files that changed, sorted by path.
func changedFiles(old, next map[string]*sbom.File) (list []FileChange) {
	for path, n := range next {
		switch o := old[path]; {
		case o == nil:
			list = append(list, FileChange{Added, path, 0, n.Size})
		case !o.Same(n):
			list = append(list, FileChange{Changed, path, o.Size, n.Size})
		}
	}
	for path, o := range old {
		if next[path] == nil {
			list = append(list, FileChange{Removed, path, o.Size, 0})
		}
	}
	slices.SortFunc(list, func(a, b FileChange) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// changedPackages lists the packages that changed, sorted by type and name.
func changedPackages(old, next []sbom.Package) (list []PackageChange) {
	type name struct{ kind, name, arch string }
	versions := func(list []sbom.Package) map[name][]string {
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
			p := PackageChange{Change: Changed, Type: n.kind, Name: n.name}
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
	slices.SortFunc(list, func(a, b PackageChange) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
	return list
}

// componentPair is an image of one release and the same image of another one; one of them
// may be nil.
type componentPair struct{ Old, New *artifact.Component }

// pairComponents finds the image that each new one replaces: of the same name, else of the
// same repository, in their order.
func pairComponents(old, next []artifact.Component) []componentPair {
	taken := map[int]bool{}
	list := make([]componentPair, len(next))
	find := func(key func(string) string) {
		for i := range next {
			if list[i].New = &next[i]; list[i].Old != nil {
				continue
			}
			for k := range old {
				if !taken[k] && key(old[k].URL) == key(next[i].URL) {
					list[i].Old, taken[k] = &old[k], true
					break
				}
			}
		}
	}
	find(source.Normal)
	find(source.Repository)
	for k := range old {
		if !taken[k] {
			list = append(list, componentPair{Old: &old[k]})
		}
	}
	return list
}
