package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// IgnoreFile is the file in the manifests directory that names what is not shipped.
// Its syntax is that of .dockerignore. It is not shipped itself.
const IgnoreFile = ".menderappignore"

// maxIgnoreFile bounds the file, in bytes.
const maxIgnoreFile = 1 << 20

// Ignore says which files of a directory are not shipped. A nil *Ignore ignores
// nothing.
type Ignore struct {
	matcher *patternmatcher.PatternMatcher // nil: ignores nothing
	kept    *patternmatcher.PatternMatcher // what the patterns with "!" name; nil: nothing
	only    map[string]bool                // the files and directories that alone are shipped; nil: all
	lost    map[string]bool                // links to nothing in these directories, which are not shipped
}

// ReadIgnore reads the IgnoreFile of a directory; nil if there is none.
func ReadIgnore(dir string) (*Ignore, error) {
	bad := func(err error) error {
		return &Error{Place: Place{File: IgnoreFile}, Text: err.Error(), Hint: "it is written as a .dockerignore"}
	}
	info, err := os.Lstat(filepath.Join(dir, IgnoreFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, bad(err)
	case !info.Mode().IsRegular() || info.Size() > maxIgnoreFile:
		return nil, bad(fmt.Errorf("is not a file of at most %d bytes", maxIgnoreFile))
	}
	f, err := os.Open(filepath.Join(dir, IgnoreFile))
	if err != nil {
		return nil, bad(err)
	}
	defer f.Close()
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, bad(err)
	}
	matcher, err := patternmatcher.New(append(patterns, IgnoreFile))
	if err != nil {
		return nil, bad(err)
	}
	if _, err := matcher.MatchesOrParentMatches("x"); err != nil { // compiles the patterns
		return nil, bad(err)
	}
	var kept []string
	for _, p := range patterns {
		if p, ok := strings.CutPrefix(p, "!"); ok {
			kept = append(kept, p)
		}
	}
	ignore := &Ignore{matcher: matcher}
	if kept != nil {
		if ignore.kept, err = patternmatcher.New(kept); err != nil {
			return nil, bad(err)
		}
	}
	return ignore, nil
}

// Ignored reports whether the file or directory of this name, relative to the
// directory, is not shipped.
func (i *Ignore) Ignored(name string) bool {
	if i == nil || i.matcher == nil {
		return false
	}
	match, err := i.matcher.MatchesOrParentMatches(filepath.FromSlash(name))
	return err == nil && match
}

// Lost are the links to nothing that are not shipped, sorted: Select found them in directories
// that are needed.
func (i *Ignore) Lost() []string { return slices.Sorted(maps.Keys(i.lost)) }

// whole reports whether everything below an ignored directory is ignored too: no
// pattern begins with "!".
func (i *Ignore) whole() bool { return i.matcher == nil || !i.matcher.Exclusions() }

// Walk calls visit for each file and directory of dir that is shipped, by its name
// relative to dir, in lexical order. It follows no link.
func (i *Ignore) Walk(dir fs.FS, visit func(name string, d fs.DirEntry) error) error {
	return fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		is, below := i.selected(name)
		switch {
		case i != nil && i.lost[name]:
			return nil
		case name == ".":
			return visit(name, d)
		case !is && d.IsDir() && !below:
			return fs.SkipDir
		case !is: // what is shipped of a directory brings it along
			return nil
		case !i.Ignored(name):
			return visit(name, d)
		case d.IsDir() && i.whole():
			return fs.SkipDir
		}
		return nil
	})
}
