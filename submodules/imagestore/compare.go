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
)

// maxProblems bounds the problems that are kept for a layer, and MaxNamed the
// problems that are reported.
const (
	maxProblems = 1000
	MaxNamed    = 20
)

// Compare reads a layer's tar and compares it with the directory that overlayfs
// unpacked the layer to. It reports everything that is missing or differs:
// regular files (with their content if contents is set), directories, links,
// devices and whiteouts. If two entries have the same name, the later one counts. It
// reports at most MaxNamed problems, and then the number of the others. An error
// comes from the tar or the context.
func Compare(ctx context.Context, r io.Reader, dir *os.Root, contents bool) ([]string, error) {
	c := &comparison{dir: dir, contents: contents, bad: map[string]string{}, gone: map[string]bool{}, buf: make([]byte, 128<<10)}
	for tr := tar.NewReader(r); len(c.bad)+len(c.gone) < maxProblems; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = c.entry(h, tr)
		}
		if err != nil {
			return nil, err
		}
	}
	for name := range c.gone {
		c.bad[name] = name + " is not removed any more"
	}
	return listed(c.bad), nil
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

// comparison is the state of one Compare.
type comparison struct {
	dir      *os.Root
	contents bool
	bad      map[string]string // by name
	gone     map[string]bool   // names that the layer removes and that are there
	buf      []byte
}

func (c *comparison) entry(h *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	dir, base := path.Split(name)
	if strings.HasPrefix(base, ".wh..wh.") {
		return nil // an attribute of the directory, or AUFS's own
	}
	if removed, ok := strings.CutPrefix(base, ".wh."); ok {
		// Forget a name that is right: if the same layer has another entry for
		// it, that entry is checked too.
		if fi, err := c.dir.Lstat(dir + removed); err != nil || !isWhiteout(fi) {
			c.gone[dir+removed] = true
		}
		return nil
	}
	if len(c.gone) > 0 { // the same layer can remove a name and create it again
		for up := name; up != "."; up = path.Dir(up) {
			delete(c.gone, up)
		}
	}
	delete(c.bad, name)
	if name == "" || h.Typeflag == tar.TypeReg && h.Size > 0 && !c.contents {
		return nil
	}
	what, err := c.look(name, h, content)
	if what != "" {
		c.bad[name] = what
	}
	return err
}

// look describes the problem of one name, "" if there is none.
func (c *comparison) look(name string, h *tar.Header, content io.Reader) (string, error) {
	fi, err := c.dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name + " is missing", nil
	}
	if err != nil {
		return fmt.Sprintf("%s: %v", name, err), nil
	}
	right := true
	switch h.Typeflag {
	case tar.TypeDir:
		right = fi.IsDir()
	case tar.TypeSymlink:
		right = fi.Mode()&fs.ModeSymlink != 0
		if to, err := c.dir.Readlink(name); err == nil && to != h.Linkname {
			return fmt.Sprintf("%s leads to %q, not %q", name, to, h.Linkname), nil
		}
	case tar.TypeReg:
		right = fi.Mode().IsRegular()
	}
	switch {
	case !right:
		return fmt.Sprintf("%s is something else than it was (%v)", name, fi.Mode().Type()), nil
	case h.Typeflag != tar.TypeReg:
		return "", nil
	case fi.Size() != h.Size:
		return fmt.Sprintf("%s has %d bytes, not %d", name, fi.Size(), h.Size), nil
	}
	return c.same(name, content)
}

// same compares the content of a regular file.
func (c *comparison) same(name string, content io.Reader) (string, error) {
	f, err := c.dir.Open(name)
	if err != nil {
		return fmt.Sprintf("%s: %v", name, err), nil
	}
	defer f.Close()
	half := len(c.buf) / 2
	for {
		n, err := io.ReadFull(content, c.buf[:half])
		if n > 0 {
			if _, ferr := io.ReadFull(f, c.buf[half:half+n]); ferr != nil || !bytes.Equal(c.buf[:n], c.buf[half:half+n]) {
				return name + " is damaged", nil
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
