package artifact

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
	"github.com/mender-app/mender-app/artifact/names"
)

const manifestsDir = "manifests"

// MaxManifests is the greatest size of an unpacked manifests payload, in bytes.
// MaxManifestEntries is the greatest number of its files, directories and links.
// The sizes in the metadata do not raise them.
const (
	MaxManifests       = 64 << 20
	MaxManifestEntries = 10000
)

// ManifestLimits are further bounds of a manifests payload. A zero field means
// no further bound.
type ManifestLimits struct {
	MaxBytes   int64 // the payload, unpacked (Sizes.ManifestsPayload)
	MaxEntries int   // files, directories and links
}

func (l ManifestLimits) effective() ManifestLimits {
	if l.MaxBytes == 0 {
		l.MaxBytes = MaxManifests
	}
	if l.MaxEntries == 0 {
		l.MaxEntries = MaxManifestEntries
	}
	return ManifestLimits{min(l.MaxBytes, MaxManifests), min(l.MaxEntries, MaxManifestEntries)}
}

// ReadManifests unpacks a manifests payload (tar, or tar.gz) into root, which
// should be empty. The names of the members lose their leading "manifests/". It
// unpacks regular files, directories, and symbolic links that lead to one of them
// inside the tree, and refuses anything else. It removes set-id and sticky bits and
// the permission of others to write, and adds the owner's permission to read and
// write. It ignores owners and times.
//
// It changes nothing outside root. On an error the caller removes root. The files
// are not synced.
//
// It returns the digest of the manifests, as FORMAT.md defines it.
func ReadManifests(r io.Reader, root *os.Root, limits ManifestLimits) (digest.Digest, error) {
	limits = limits.effective()
	tr, err := tarin.NewReader(r, tarin.Options{
		// The root has an entry of its own.
		MaxBytes: limits.MaxBytes, MaxMembers: limits.MaxEntries + 1, Format: ErrPayload, TooLarge: ErrTooLarge,
	})
	if err != nil {
		return "", fmt.Errorf("manifests: %w", err)
	}
	t := make(tree)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = unpack(root, t, h, tr)
		}
		if err == nil && len(t) > limits.MaxEntries {
			err = fmt.Errorf("%w: more than %d files and directories", ErrTooLarge, limits.MaxEntries)
		}
		if err != nil {
			return "", fmt.Errorf("manifests: %w", err)
		}
	}
	// Links are made last, when all of them are known to stay inside the tree.
	// So no file can be written through a link.
	if err := t.checkLinks(); err != nil {
		return "", fmt.Errorf("manifests: %w: %w", ErrPayload, err)
	}
	for _, name := range t.sorted() {
		if n := t[name]; n.kind == kindLink {
			if err := root.Symlink(n.target, name); err != nil {
				return "", fmt.Errorf("manifests: %w", err)
			}
		}
	}
	return t.digest(), nil
}

// unpack puts one member into the tree and, unless it is a link, into root.
func unpack(root *os.Root, t tree, h *tar.Header, r io.Reader) error {
	name, ok := strings.CutPrefix(h.Name+"/", manifestsDir+"/")
	if !ok {
		return fmt.Errorf("%w: member %q is not below %s/", ErrPayload, clip.Text(h.Name), manifestsDir)
	}
	name = strings.TrimSuffix(name, "/")
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: %s is not a directory", ErrPayload, manifestsDir)
		}
		return nil
	}
	n := node{kind: kindDir, mode: dirMode(h.FileInfo().Mode())}
	switch h.Typeflag {
	case tar.TypeDir:
	case tar.TypeReg:
		n = node{kind: kindFile, mode: fileMode(h.FileInfo().Mode())}
	case tar.TypeSymlink:
		n = node{kind: kindLink, target: h.Linkname}
	default:
		return fmt.Errorf("%w: member %q is %s; only files, directories and symbolic links may be here", ErrPayload, clip.Text(h.Name), typeName(h.Typeflag))
	}
	if err := t.add(name, n); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	switch n.kind {
	case kindLink:
		return root.MkdirAll(path.Dir(name), 0o755)
	case kindDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		// The umask must not change the mode.
		return root.Chmod(name, n.mode)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), r)
	if err == nil {
		err = f.Chmod(n.mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", clip.Text(name), err)
	}
	n.sum = sum.Sum(nil)
	t[name] = n
	return nil
}

func fileMode(m fs.FileMode) fs.FileMode { return m&0o755 | 0o600 }
func dirMode(m fs.FileMode) fs.FileMode  { return m&0o755 | 0o700 }

func typeName(flag byte) string {
	switch flag {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a FIFO"
	}
	return fmt.Sprintf("of type %q", flag)
}

// tree is the content of a manifests payload, by clean relative names. It also has
// directories without an entry of their own.
type tree map[string]node

type node struct {
	kind   nodeKind
	mode   fs.FileMode // the permissions of the unpacked file; 0 for a link
	target string      // of a link
	sum    []byte      // SHA-256 of a file's content
}

type nodeKind string

// The kinds of entries, as they are written in the digest of the manifests.
const (
	kindDir  nodeKind = "dir"
	kindFile nodeKind = "file"
	kindLink nodeKind = "link"
)

// maxDepth bounds the directories of one name. maxLink is PATH_MAX less its NUL.
// maxFollow is the kernel's bound on links in a path. maxSteps bounds the time
// that a tree of links takes.
const (
	maxDepth  = 64
	maxLink   = 4095
	maxFollow = 40
	maxSteps  = 1 << 20
)

func (t tree) add(name string, n node) error {
	if err := names.CheckPath(name); err != nil {
		return err
	}
	if strings.Count(name, "/") >= maxDepth {
		return fmt.Errorf("member %q: more than %d directories deep", clip.Text(name), maxDepth)
	}
	if old, ok := t[name]; ok && (old.kind != kindDir || n.kind != kindDir) {
		return fmt.Errorf("member %q occurs twice", clip.Text(name))
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if parent, ok := t[dir]; ok {
			if parent.kind != kindDir {
				return fmt.Errorf("member %q: %q is not a directory", clip.Text(name), clip.Text(dir))
			}
			break
		}
		t[dir] = node{kind: kindDir, mode: 0o755}
	}
	if n.kind == kindLink && (n.target == "" || len(n.target) > maxLink || strings.ContainsRune(n.target, 0)) {
		return fmt.Errorf("link %q has a malformed target", clip.Text(name))
	}
	t[name] = n
	return nil
}

func (t tree) sorted() []string {
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// digest is the digest of the manifests. No field has a NUL, so different trees
// have different texts.
func (t tree) digest() digest.Digest {
	h := sha256.New()
	for _, name := range t.sorted() {
		n := t[name]
		content := n.target
		if n.kind == kindFile {
			content = fmt.Sprintf("%x", n.sum)
		}
		fmt.Fprintf(h, "%s\x00%04o\x00%s\x00%s\x00", n.kind, n.mode, name, content)
	}
	return digest.OfHash(h)
}

// checkLinks checks that every link leads to a file or directory of the tree. It
// follows links as the kernel does, because a name alone does not show where
// "link/.." leads.
func (t tree) checkLinks() error {
	steps := maxSteps
	for _, name := range t.sorted() {
		if t[name].kind != kindLink {
			continue
		}
		if err := t.resolve(name, &steps); err != nil {
			return fmt.Errorf("link %q to %q %w", clip.Text(name), clip.Text(t[name].target), err)
		}
	}
	return nil
}

// resolve follows a name. Each part of the name is one step.
func (t tree) resolve(name string, steps *int) error {
	at := "."
	links := 0
	todo := strings.Split(name, "/")
	for len(todo) > 0 {
		if *steps--; *steps < 0 {
			return fmt.Errorf("is one too many: it takes too long to follow them all")
		}
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return fmt.Errorf("leads out of the tree")
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		n, ok := t[next]
		switch {
		case !ok:
			return fmt.Errorf("leads to nothing in the tree")
		case n.kind == kindLink:
			if strings.HasPrefix(n.target, "/") {
				return fmt.Errorf("leads out of the tree")
			}
			if links++; links > maxFollow {
				return fmt.Errorf("never ends")
			}
			todo = append(strings.Split(n.target, "/"), todo...)
		case n.kind == kindFile && len(todo) > 0:
			return fmt.Errorf("leads through a file")
		default:
			at = next
		}
	}
	return nil
}
