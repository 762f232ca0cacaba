package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/artifact/names"
)

// This file finds what of a directory an orchestrator reads: nothing else is shipped.

// need notes a file or directory that the device reads. It is relative to c.dir, or
// absolute; what lies outside is another's to refuse.
func (c *composer) need(name string) {
	if rel, ok := relative(c.dir, name); ok && name != "" {
		c.needs[rel] = true
	}
}

// needed notes what the services of a project read, the inactive ones too: an operator
// may switch their profiles on.
func (c *composer) needed(p *types.Project) {
	c.need(".env")
	for _, services := range []types.Services{p.Services, p.DisabledServices} {
		for _, s := range services {
			c.neededBy(&s.ContainerSpec)
			for i := range s.PreStart {
				c.neededBy(&s.PreStart[i].ContainerSpec)
			}
		}
	}
	for _, f := range convert(p.Configs) {
		c.need(f.File)
	}
	for _, f := range convert(p.Secrets) {
		if f.File != "" {
			c.need(f.File)
			c.need(f.File + names.EncryptedSuffix)
		}
	}
	for _, v := range p.Volumes {
		if device := v.DriverOpts["device"]; !filepath.IsAbs(device) { // as a bind mount of a named volume
			c.need(device)
		}
	}
}

func (c *composer) neededBy(s *types.ContainerSpec) {
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeBind {
			c.need(v.Source)
		}
	}
	for _, f := range s.EnvFiles {
		c.need(f.Path)
	}
	for _, f := range s.LabelFiles {
		c.need(f)
	}
	for _, o := range s.SecurityOpt { // Compose reads the profile and passes its text on
		if key, file, ok := strings.Cut(strings.Replace(o, ":", "=", 1), "="); ok && key == "seccomp" {
			c.need(file)
		}
	}
	if s.CredentialSpec != nil {
		c.need(s.CredentialSpec.File)
	}
}

// Select narrows what is shipped of a directory to the needed files and directories, to
// what these links lead to, and to what the IgnoreFile names with "!". A link to
// nothing in a needed directory is left out, because no device takes it.
func (i *Ignore) Select(dir string, needs []string) (*Ignore, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	s := &selection{root: root, needs: map[string]bool{}, lost: map[string]bool{}}
	for _, name := range needs {
		if err := s.add(path.Clean(filepath.ToSlash(name)), 0); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(s.lost, func(name string, _ bool) bool { return s.needs[name] }) // CheckTree refuses what is named
	out := Ignore{only: s.needs, lost: s.lost}
	if i != nil {
		out.matcher, out.kept = i.matcher, i.kept
	}
	return &out, nil
}

// selection collects what is needed, with the links on the way to it.
type selection struct {
	root  *os.Root
	needs map[string]bool
	lost  map[string]bool // links to nothing that nothing names
	links int
}

// maxLinks bounds the links that are followed on the way to one file, as the kernel does.
const maxLinks = 40

// add selects name, if it exists, and follows links: those on its way, and those in it.
func (s *selection) add(name string, depth int) error {
	if s.needs[name] || depth > maxLinks || !filepath.IsLocal(name) {
		return nil
	}
	parts := strings.Split(name, "/")
	for n := range parts {
		at := path.Join(parts[:n+1]...)
		info, err := s.root.Lstat(at)
		if err != nil {
			return notThere(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		s.needs[at] = true
		return s.follow(at, strings.Join(parts[n+1:], "/"), depth)
	}
	s.needs[name] = true
	return fs.WalkDir(s.root.FS(), name, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		if s.links++; s.links > maxFiles {
			return fs.SkipAll
		}
		if _, err := s.root.Stat(file); err != nil && notThere(err) == nil {
			s.lost[file] = true
			return nil
		}
		return s.follow(file, "", depth)
	})
}

// follow selects what a link leads to. CheckTree refuses one that leads out.
func (s *selection) follow(link, rest string, depth int) error {
	target, err := s.root.Readlink(link)
	if err != nil {
		return notThere(err)
	}
	if filepath.IsAbs(target) {
		return nil
	}
	return s.add(path.Join(path.Dir(link), target, rest), depth+1)
}

func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
		return nil
	}
	return fmt.Errorf("manifests directory: %w", err)
}

// selected reports whether a file or directory is shipped because it is needed, and
// whether something below a directory may be.
func (i *Ignore) selected(name string) (is, below bool) {
	if i == nil || i.only == nil || i.only["."] {
		return true, true
	}
	for at := name; at != "."; at = path.Dir(at) {
		if i.only[at] {
			return true, true
		}
	}
	if i.kept != nil {
		below = true
		if kept, err := i.kept.MatchesOrParentMatches(filepath.FromSlash(name)); err == nil && kept {
			return true, true
		}
	}
	for need := range i.only {
		if strings.HasPrefix(need, name+"/") {
			return true, true // the directory itself, and not all that is in it
		}
	}
	return false, below
}

// Shipped is a file of the manifests as it is shipped.
type Shipped struct {
	Path string `json:"path"`
	Size int64  `json:"size"` // of a link 0
}

// List lists the files and links of a tree, by their names.
func List(dir string) (list []Shipped, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		s := Shipped{Path: name}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			s.Size = info.Size()
		}
		list = append(list, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("manifests directory: %w", err)
	}
	return list, nil
}

// Size adds up the bytes of files.
func Size(list []Shipped) (n int64) {
	for _, s := range list {
		n += s.Size
	}
	return n
}

// mentioned is how many files Largest names.
const mentioned = 3

// Largest names the largest files, with their sizes.
func Largest(list []Shipped) string {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Shipped) int { return cmp.Compare(b.Size, a.Size) })
	var names []string
	for _, s := range list[:min(len(list), mentioned)] {
		names = append(names, fmt.Sprintf("%s (%s)", s.Path, SizeText(s.Size)))
	}
	return strings.Join(names, ", ")
}

// needsOf lists what was found to be needed.
func needsOf(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
