package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/metered"
)

// Data is kept as a tar of its own, with all attributes and kinds of files: owners,
// permissions, times, extended attributes, hard links, sockets and pipes. Holes are written
// as zeros and become holes again. Devices are refused. A directory comes before its
// content, and its content before the directory's next sibling. Siblings are sorted by
// name, so a reader needs no list of the entries it has seen.

// WriteTree writes the content of a directory, which must not change meanwhile.
func WriteTree(out io.Writer, dir string) error {
	w := &treeWriter{tw: tar.NewWriter(out), dir: dir, linked: map[inode]string{}}
	if err := filepath.WalkDir(dir, w.entry); err != nil {
		return err
	}
	return w.tw.Close()
}

// ErrHoles: a tree is far larger than what it has on disk.
var ErrHoles = errors.New("the holes of files are too large for a backup, which writes them as zeros")

// TreeSize returns how many bytes WriteTree writes; more than most are ErrHoles. It reads no
// content, and does not count through holes.
func TreeSize(dir string, most int64) (n int64, err error) {
	w := &treeWriter{dir: dir, most: most, linked: map[inode]string{}}
	err = filepath.WalkDir(dir, w.entry)
	return int64(w.size) + endOfTar, err
}

// endOfTar is how many bytes follow the last entry.
const endOfTar = 2 * blockOfTar

const blockOfTar = 512

type inode struct{ dev, ino uint64 }

type treeWriter struct {
	tw     *tar.Writer // nil: it only counts
	size   metered.Counter
	most   int64 // that size may be
	dir    string
	linked map[inode]string // the first name of files with several names
}

// xattr is how tars name extended attributes.
const xattr = "SCHILY.xattr."

func (w *treeWriter) entry(file string, _ fs.DirEntry, err error) error {
	if err != nil || file == w.dir {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: file, Err: err}
	}
	name, err := filepath.Rel(w.dir, file)
	if err != nil {
		return err
	}
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		id := inode{uint64(st.Dev), st.Ino}
		if first, ok := w.linked[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return w.header(h)
		}
		w.linked[id] = name
	}
	switch kind {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFSOCK:
		h.Typeflag = typeSocket
	default:
		return fmt.Errorf("%s is a device, which is not backed up", file)
	}
	if kind == unix.S_IFDIR || kind == unix.S_IFREG {
		if err := attributes(h, file); err != nil {
			return err
		}
	}
	if err := w.header(h); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if kind != unix.S_IFREG {
		return nil
	}
	if w.tw == nil {
		if st.Size > w.most-int64(w.size) {
			return fmt.Errorf("%s has %d bytes: %w", name, st.Size, ErrHoles)
		}
		w.size += metered.Counter((st.Size + blockOfTar - 1) / blockOfTar * blockOfTar)
		return nil
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(w.tw, f, st.Size); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// typeSocket is our own: tar has no sockets.
const typeSocket = 'Z'

// header writes a header, or counts it.
func (w *treeWriter) header(h *tar.Header) error {
	if w.tw == nil {
		return tar.NewWriter(&w.size).WriteHeader(h)
	}
	return w.tw.WriteHeader(h)
}

// attributes adds a file's extended attributes.
func attributes(h *tar.Header, file string) error {
	list := make([]byte, maxXattr)
	n, err := unix.Llistxattr(file, list)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "listxattr", Path: file, Err: err}
	}
	value := make([]byte, maxXattr)
	for name := range bytes.SplitSeq(list[:n], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		n, err := unix.Lgetxattr(file, string(name), value)
		if err != nil {
			return &fs.PathError{Op: "getxattr " + string(name), Path: file, Err: err}
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[xattr+string(name)] = string(value[:n])
	}
	return nil
}

// maxXattr is the kernel's bound of a value, and of all names.
const maxXattr = 64 << 10

// ReadTree reads the output of WriteTree, with a directory for each place at the top, named by
// its index, into root. If root is nil, it only checks the names. It makes nothing durable.
//
// A file for a directory of the device, where every user may run it, does not get what gives
// a program the rights of its owner: setuid, setgid and capabilities. weakened is how many
// files had any.
func ReadTree(in io.Reader, root *os.Root, places []Place) (weakened int, err error) {
	r := &treeReader{root: root, places: places, last: []string{""}}
	tr := tar.NewReader(in)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			if r.tops != len(places) {
				return 0, bad("data of %d places instead of %d", r.tops, len(places))
			}
			return r.weakened, r.leave("")
		}
		if err != nil {
			return 0, readError(err)
		}
		if err := r.entry(h, tr); err != nil {
			return 0, err
		}
	}
}

// capability is the attribute with the capabilities of a program.
const capability = xattr + "security.capability"

// weaken takes the rights of a program from a file.
func (r *treeReader) weaken(h *tar.Header) {
	const rights = unix.S_ISUID | unix.S_ISGID
	if h.Mode&rights != 0 || h.PAXRecords[capability] != "" {
		r.weakened++
	}
	h.Mode &^= rights
	delete(h.PAXRecords, capability)
}

// maxDepth bounds how deep directories may be nested.
const maxDepth = 1000

type treeReader struct {
	root   *os.Root
	places []Place
	tops   int           // how many places there were
	open   []*tar.Header // the directories that may hold the next entry, the top one first
	last   []string      // the names of the last entries at the top and in each of them

	weakened int
}

func (r *treeReader) entry(h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if !plain(h) || name == "" || name != path.Clean(name) || !filepath.IsLocal(name) || strings.ContainsRune(name, 0) || h.Mode&^0o7777 != 0 ||
		h.Uid < 0 || h.Gid < 0 || h.Typeflag != tar.TypeReg && h.Size != 0 {
		return bad("data has an entry %q", h.Name)
	}
	dir := path.Dir(name)
	if err := r.leave(dir); err != nil {
		return err
	}
	last := &r.last[len(r.open)]
	if base := path.Base(name); base <= *last {
		return bad("data has %q twice, or out of order", name)
	} else {
		*last = base
	}
	if dir == "." {
		r.tops++
		if i, err := strconv.Atoi(name); err != nil || i < 0 || i >= len(r.places) || strconv.Itoa(i) != name || h.Typeflag != tar.TypeDir {
			return bad("data has %q at its top", name)
		}
	} else if n := len(r.open); n == 0 || strings.TrimSuffix(r.open[n-1].Name, "/") != dir {
		return bad("data has %q without its directory", name)
	}
	if h.Typeflag == tar.TypeLink {
		place, _, _ := strings.Cut(name, "/")
		if target := h.Linkname; target != path.Clean(target) || !strings.HasPrefix(target, place+"/") {
			return bad("data has a link to %q", target)
		}
	}
	if r.places[r.tops-1].Dir != "" && h.Typeflag == tar.TypeReg {
		r.weaken(h)
	}
	if err := r.make(h, name, content); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		r.open, r.last = append(r.open, h), append(r.last, "")
		if len(r.open) > maxDepth {
			return bad("data has directories deeper than %d", maxDepth)
		}
		return nil
	}
	return r.finish(h, name)
}

// leave finishes the directories that do not contain dir, and sets their times last.
func (r *treeReader) leave(dir string) error {
	for n := len(r.open); n > 0; n = len(r.open) {
		last := strings.TrimSuffix(r.open[n-1].Name, "/")
		if dir == last || strings.HasPrefix(dir, last+"/") {
			return nil
		}
		if err := r.finish(r.open[n-1], last); err != nil {
			return err
		}
		r.open, r.last = r.open[:n-1], r.last[:n]
	}
	return nil
}

// make makes an entry, which must not exist. ReadTree made its directory, so no link is
// followed.
func (r *treeReader) make(h *tar.Header, name string, content io.Reader) error {
	if r.root == nil {
		if !slices.Contains([]byte{tar.TypeDir, tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, typeSocket}, h.Typeflag) {
			return bad("data has %q of the type %q", name, h.Typeflag)
		}
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return r.root.Mkdir(name, 0o700)
	case tar.TypeReg:
		return r.file(h, name, content)
	case tar.TypeSymlink:
		return r.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return r.root.Link(h.Linkname, name)
	case tar.TypeFifo, typeSocket:
		kind := uint32(unix.S_IFIFO)
		if h.Typeflag == typeSocket {
			kind = unix.S_IFSOCK
		}
		d, err := r.root.Open(path.Dir(name))
		if err != nil {
			return err
		}
		defer d.Close()
		if err := unix.Mknodat(int(d.Fd()), path.Base(name), kind|0o600, 0); err != nil {
			return &fs.PathError{Op: "mknod", Path: name, Err: err}
		}
		return nil
	}
	return bad("data has %q of the type %q", name, h.Typeflag)
}

// block is the unit of holes.
const block = 4096

// file writes the content of a file, and leaves out blocks of zeros.
func (r *treeReader) file(h *tar.Header, name string, content io.Reader) (err error) {
	f, err := r.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var zero [block]byte
	buf := make([]byte, 16*block)
	for at := int64(0); at < h.Size; {
		n, err := io.ReadFull(content, buf[:min(int64(len(buf)), h.Size-at)])
		if err != nil {
			return readError(err)
		}
		for i := 0; i < n; i += block {
			part := buf[i:min(n, i+block)]
			if bytes.Equal(part, zero[:len(part)]) {
				continue
			}
			if _, err := f.WriteAt(part, at+int64(i)); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return f.Truncate(h.Size)
}

// finish gives an entry its owner, permissions, extended attributes and times.
func (r *treeReader) finish(h *tar.Header, name string) error {
	if r.root == nil || h.Typeflag == tar.TypeLink {
		return nil
	}
	if err := r.root.Lchown(name, h.Uid, h.Gid); err != nil {
		return err
	}
	d, err := r.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer d.Close()
	if h.Typeflag != tar.TypeSymlink { // after the owner, because a change of owner clears bits
		if err := unix.Fchmodat(int(d.Fd()), path.Base(name), uint32(h.Mode), 0); err != nil {
			return &fs.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeReg {
		if err := r.attributes(h, name); err != nil {
			return err
		}
	}
	then := unix.NsecToTimespec(h.ModTime.UnixNano())
	if err := unix.UtimesNanoAt(int(d.Fd()), path.Base(name), []unix.Timespec{then, then}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimensat", Path: name, Err: err}
	}
	return nil
}

func (r *treeReader) attributes(h *tar.Header, name string) error {
	var f *os.File
	for record, value := range h.PAXRecords {
		key, ok := strings.CutPrefix(record, xattr)
		if !ok {
			continue
		}
		if f == nil {
			var err error
			if f, err = r.root.Open(name); err != nil {
				return err
			}
			defer f.Close()
		}
		if err := unix.Fsetxattr(int(f.Fd()), key, []byte(value), 0); err != nil {
			return &fs.PathError{Op: "setxattr " + key, Path: name, Err: err}
		}
	}
	return nil
}
