package imagestore

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/layer"
)

// maxProblems bounds the problems that are kept for a layer, and maxText their names
// and texts in bytes: a later member may be what stands in the place of an earlier one.
// MaxNamed bounds the problems that are reported.
const (
	maxProblems = 1 << 15
	maxText     = 8 << 20
	MaxNamed    = 20
)

// Compare reads a layer's tar and compares it with the directory that the layer was
// unpacked to. It reports everything that is missing or differs: regular files with
// their content, directories, links, devices and whiteouts. Of several members that
// have one place, the last counts, as it does for engines. It reports at most MaxNamed
// problems, and then the number of the others. An error comes from the tar or the
// context.
func Compare(ctx context.Context, r io.Reader, dir *os.Root) ([]string, error) {
	c := NewComparison(dir)
	for tr := tar.NewReader(r); !c.Full(); {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = c.Member(layer.Of(h), func(f *os.File) (string, error) { return c.same(f, tr) })
		}
		if err != nil {
			return nil, err
		}
	}
	return c.Problems(), nil
}

// isWhiteout reports whether a file is overlayfs' mark for a removed name.
func isWhiteout(fi fs.FileInfo) bool { return fi.Mode()&fs.ModeCharDevice != 0 }

// listed returns the problems in the order of the names.
func listed(bad map[string]string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		if len(list) == MaxNamed {
			return append(list, fmt.Sprintf("and %d more", len(bad)-MaxNamed))
		}
		list = append(list, bad[name])
	}
	return list
}

// Comparison compares the members of a layer, one after the other, with the directory
// that the layer was unpacked to.
type Comparison struct {
	within
	bad   map[string]string // by place
	above map[string]bool   // the directories of those places
	gone  map[string]bool   // places that the layer removes and where something is
	text  int               // bytes in bad and gone
	buf   []byte
}

// NewComparison begins a comparison.
func NewComparison(dir *os.Root) *Comparison {
	return &Comparison{within: within{root: dir}, bad: map[string]string{}, above: map[string]bool{}, gone: map[string]bool{}, buf: make([]byte, 128<<10)}
}

// Full reports whether there are so many problems that no more are kept.
func (c *Comparison) Full() bool {
	return len(c.bad)+len(c.gone) >= maxProblems || c.text > maxText
}

// Problems returns the problems, as Compare does.
func (c *Comparison) Problems() []string {
	bad := maps.Clone(c.bad)
	for place := range c.gone {
		bad[place] = place + " is not removed any more"
	}
	return listed(bad)
}

// Member compares a member. content compares the content of a regular file whose size
// is right and not 0; it returns what is wrong with it, such as "is damaged". An error
// is content's.
func (c *Comparison) Member(m layer.Member, content func(*os.File) (string, error)) error {
	if m.Kind == layer.None || m.Kind == layer.Opaque {
		return nil
	}
	place, fi, err := c.find(m.Path)
	if m.Kind == layer.Whiteout {
		// Forget a name that is right: if the same layer has another member for it,
		// that member is checked too.
		if (err != nil || !isWhiteout(fi)) && !c.gone[place] {
			c.gone[place] = true
			c.text += len(place)
		}
		return nil
	}
	c.replaced(place, m.Kind)
	var what string
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		what = m.Path + " is missing"
	case err != nil:
		what = fmt.Sprintf("%s: %v", m.Path, err)
	default:
		if what, err = c.look(m, place, fi, content); err != nil {
			return err
		}
	}
	if what != "" {
		c.bad[place] = what
		c.text += len(place) + len(what)
		for up := path.Dir(place); up != "." && !c.above[up]; up = path.Dir(up) {
			c.above[up] = true
		}
	}
	return nil
}

// replaced forgets the problems of what a member takes the place of.
func (c *Comparison) replaced(place string, kind layer.Kind) {
	if len(c.gone) > 0 { // the same layer can remove a name and create it again
		for up := place; up != "."; up = path.Dir(up) {
			if c.gone[up] {
				delete(c.gone, up)
				c.text -= len(up)
			}
		}
	}
	c.forget(place)
	if kind != layer.Dir && c.above[place] { // an engine removes a directory with all that is below
		for p := range c.bad {
			if strings.HasPrefix(p, place+"/") {
				c.forget(p)
			}
		}
		delete(c.above, place)
	}
}

func (c *Comparison) forget(place string) {
	if what, ok := c.bad[place]; ok {
		delete(c.bad, place)
		c.text -= len(place) + len(what)
	}
}

// look describes the problem of one place, "" if there is none.
func (c *Comparison) look(m layer.Member, place string, fi fs.FileInfo, content func(*os.File) (string, error)) (string, error) {
	right := true
	switch m.Kind {
	case layer.Dir:
		right = fi.IsDir()
	case layer.Symlink:
		right = fi.Mode()&fs.ModeSymlink != 0
		if to, err := c.root.Readlink(place); err == nil && to != m.Header.Linkname {
			return fmt.Sprintf("%s leads to %q, not %q", m.Path, to, m.Header.Linkname), nil
		}
	case layer.File:
		right = fi.Mode().IsRegular()
	}
	switch {
	case !right:
		return fmt.Sprintf("%s is something else than it was (%v)", m.Path, fi.Mode().Type()), nil
	case m.Kind != layer.File:
		return "", nil
	case fi.Size() != m.Header.Size:
		return fmt.Sprintf("%s has %d bytes, not %d", m.Path, fi.Size(), m.Header.Size), nil
	case fi.Size() == 0:
		return "", nil
	}
	f, err := c.root.Open(place)
	if err != nil {
		return fmt.Sprintf("%s: %v", m.Path, err), nil
	}
	defer f.Close()
	what, err := content(f)
	if what != "" {
		what = m.Path + " " + what
	}
	return what, err
}

// same compares the content of a file.
func (c *Comparison) same(f *os.File, content io.Reader) (string, error) {
	half := len(c.buf) / 2
	for {
		n, err := io.ReadFull(content, c.buf[:half])
		if n > 0 {
			if _, ferr := io.ReadFull(f, c.buf[half:half+n]); ferr != nil || !bytes.Equal(c.buf[:n], c.buf[half:half+n]) {
				return "is damaged", nil
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
}
