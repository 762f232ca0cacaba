package imagestore

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/layer"
)

// maxLinks is how many links the kernel follows in a path (path_resolution(7)).
const maxLinks = 40

// within finds the names of a layer in the directory that the layer was unpacked to, as
// the engine found them, whose root was that directory: links on the way that are
// absolute or climb lead to places below it (RESOLVE_IN_ROOT of openat2(2), which
// kernels before 5.6 do not have). The directory must not change meanwhile.
type within struct {
	root  *os.Root
	dir   string // the directory of the last name, and what was found for it
	place string
	err   error
	asked bool
}

// find returns the place of a name and what is there. The place is the same for all
// names that lead to it, has no links on the way, and is returned with an error, too. A
// link at the end of the name is not followed.
func (w *within) find(name string) (place string, fi fs.FileInfo, err error) {
	dir, base := path.Split(layer.Clean(name))
	if !w.asked || dir != w.dir {
		w.place, w.err = resolve(w.root, dir)
		w.dir, w.asked = dir, true
	}
	place = path.Join(w.place, base)
	if w.err != nil {
		return place, nil, w.err
	}
	fi, err = w.root.Lstat(place)
	return place, fi, err
}

// OpenWithin opens a regular file by its name in a layer, below the directory that the
// layer was unpacked to. Links on the way lead as in a container whose root is that
// directory. For anything else than a regular file the error is fs.ErrNotExist.
func OpenWithin(root *os.Root, name string) (*os.File, error) {
	place := layer.Clean(name)
	fi, err := root.Lstat(place)
	if err != nil { // os.Root follows no link that leads out
		place, fi, err = (&within{root: root}).find(name)
	}
	if err == nil && !fi.Mode().IsRegular() { // opening a FIFO would block
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	return root.Open(place)
}

// resolve follows the links in a path, and at its end. os.Root is asked only for paths
// without links.
func resolve(root *os.Root, name string) (string, error) {
	at, rest, links := ".", name, 0
	for rest != "" {
		var next string
		next, rest, _ = strings.Cut(rest, "/")
		switch next {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		step := path.Join(at, next)
		to, err := root.Readlink(step)
		switch {
		case errors.Is(err, unix.EINVAL): // no link
			at = step
			continue
		case err != nil:
			return path.Join(step, rest), err
		}
		if links++; links > maxLinks {
			return path.Clean(name), &fs.PathError{Op: "open", Path: name, Err: unix.ELOOP}
		}
		if path.IsAbs(to) {
			at = "."
		}
		rest = to + "/" + rest
	}
	return at, nil
}
