package artifact

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/mender-app/mender-app/artifact/digest"
)

// Written describes what WriteManifests wrote.
type Written struct {
	Payload int64         // the tar's bytes (Sizes.ManifestsPayload)
	Files   int64         // the files' bytes (Sizes.Manifests)
	Digest  digest.Digest // of the manifests, which ReadManifests returns
}

// WriteManifests writes fsys as a manifests payload (tar.gz): sorted, owned by
// root, without times. The same tree gives the same bytes. It refuses what
// ReadManifests refuses. It keeps symbolic links if fsys is an fs.ReadLinkFS, as
// os.DirFS and os.Root.FS are.
func WriteManifests(w io.Writer, fsys fs.FS) (Written, error) {
	t, size, err := scan(fsys)
	if err != nil {
		return size, fmt.Errorf("manifests: %w", err)
	}
	gz := newMembers(w)
	if err := gz.next(gzip.DefaultCompression); err != nil {
		return size, fmt.Errorf("manifests: %w", err)
	}
	tw := tar.NewWriter(gz)
	if err := tw.WriteHeader(dirHeader(manifestsDir, 0o755)); err != nil {
		return size, fmt.Errorf("manifests: %w", err)
	}
	for _, name := range t.sorted() {
		n, err := pack(tw, fsys, name, t[name])
		if err != nil {
			return size, fmt.Errorf("manifests: %s: %w", name, err)
		}
		t[name] = n
	}
	if err := tw.Close(); err != nil {
		return size, fmt.Errorf("manifests: %w", err)
	}
	if err := gz.Close(); err != nil {
		return size, fmt.Errorf("manifests: %w", err)
	}
	size.Payload = gz.n
	if size.Payload > MaxManifests {
		return size, fmt.Errorf("manifests: %w: %d bytes, the maximum is %d", ErrTooLarge, size.Payload, MaxManifests)
	}
	size.Digest = t.digest()
	return size, nil
}

// scan lists the entries and checks them with the reader's rules.
func scan(fsys fs.FS) (tree, Written, error) {
	t := make(tree)
	var size Written
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		n := node{kind: kindDir}
		switch {
		case d.IsDir():
		case d.Type()&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(fsys, name)
			if err != nil {
				return err
			}
			n = node{kind: kindLink, target: target}
		case d.Type().IsRegular():
			n.kind = kindFile
			info, err := d.Info()
			if err != nil {
				return err
			}
			size.Files += info.Size()
		default:
			return fmt.Errorf("%w: %s: only files, directories and symbolic links may be here", ErrPayload, name)
		}
		if len(t) >= MaxManifestEntries {
			return fmt.Errorf("%w: more than %d files and directories", ErrTooLarge, MaxManifestEntries)
		}
		if err := t.add(name, n); err != nil {
			return fmt.Errorf("%w: %w", ErrPayload, err)
		}
		return nil
	})
	if err != nil {
		return nil, size, err
	}
	if err := t.checkLinks(); err != nil {
		return nil, size, fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return t, size, nil
}

// pack writes one entry and returns it with its mode and the sum of its content.
func pack(tw *tar.Writer, fsys fs.FS, name string, n node) (node, error) {
	member := manifestsDir + "/" + name
	if n.kind == kindLink {
		h := fileHeader(member, 0)
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, n.target, 0o777
		return n, tw.WriteHeader(h)
	}
	if n.kind == kindDir {
		info, err := fs.Lstat(fsys, name)
		if err != nil {
			return n, err
		}
		n.mode = dirMode(info.Mode())
		return n, tw.WriteHeader(dirHeader(member, n.mode))
	}
	f, err := fsys.Open(name)
	if err != nil {
		return n, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return n, err
	}
	n.mode = fileMode(info.Mode())
	h := fileHeader(member, info.Size())
	h.Mode = int64(n.mode)
	if err := tw.WriteHeader(h); err != nil {
		return n, err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(tw, sum), f)
	n.sum = sum.Sum(nil)
	return n, err
}

func dirHeader(name string, mode fs.FileMode) *tar.Header {
	h := fileHeader(strings.TrimSuffix(name, "/")+"/", 0)
	h.Typeflag, h.Mode = tar.TypeDir, int64(mode)
	return h
}
