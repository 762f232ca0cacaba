package store

import (
	"archive/tar"
	"bytes"
	"compress/gzip" // its writer is 64 KiB smaller than klauspost's, and flash is small
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/store/durable"
)

// This file keeps a copy of a release's files and puts back what is lost or damaged: the
// record and the manifests as they came. It says which files of the store can be made again:
//
//	app.json            from its copy beside it, otherwise from the releases (App.Rescue)
//	manifests, a link   from the state
//	release.json, and everything in manifests/: from the release's copy
//
// A release whose directory or copy is gone cannot be made again from this device. It has to
// be installed again.

const (
	// copyFile is the copy of a release's files, a tar.gz. Its checksum says that it is whole.
	copyFile = "copy.tar.gz"
	// copySuffix follows the name of the state file in that of its copy.
	copySuffix = ".copy"
	// changedDir has what was in place of the files that were put back, the last one of each.
	changedDir = "changed"
)

// Mended is a file of a release that was put back.
type Mended struct {
	Path string // in the release's directory
	// Kept is where the other content is that was in its place; "" for none.
	Kept string
}

// CopyRelease makes the copy of a release's files. It is durable after SyncRelease.
func (a *App) CopyRelease(id string) error {
	root, err := os.OpenRoot(a.releaseDir(id))
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := durable.Create(filepath.Join(a.releaseDir(id), copyFile))
	if err != nil {
		return err
	}
	defer f.Abort()
	gz := gzip.NewWriter(f)
	tw := tar.NewWriter(gz)
	for _, name := range []string{releaseFile, manifestsName} {
		if err := fs.WalkDir(root.FS(), name, func(name string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return addMember(tw, root, name)
		}); err != nil {
			return fmt.Errorf("copy release %s: %w", id, err)
		}
	}
	if err := errors.Join(tw.Close(), gz.Close()); err != nil {
		return fmt.Errorf("copy release %s: %w", id, err)
	}
	return f.Commit(filepath.Join(a.releaseDir(id), copyFile), 0o600)
}

func addMember(tw *tar.Writer, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = name
	if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(tw, f)
	return err
}

// MakeWhole puts back the files of a release that are missing or damaged, and returns them.
// With changed it puts back also the manifests that somebody changed, such as a hook. It does
// nothing for a release without a copy. If the copy is damaged, the error is a
// *CorruptError, and nothing is changed.
func (a *App) MakeWhole(id string, changed bool) (mended []Mended, err error) {
	dir := a.releaseDir(id)
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	lost := map[string]bool{}
	err = readCopy(filepath.Join(dir, copyFile), func(h *tar.Header, r io.Reader) error {
		is, err := look(root, h, r)
		if is == damaged || is == different && (changed || h.Name == releaseFile) {
			lost[h.Name] = true
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	err = readCopy(filepath.Join(dir, copyFile), func(h *tar.Header, r io.Reader) error {
		if !lost[h.Name] {
			return nil
		}
		kept, err := putAside(dir, h)
		if err == nil {
			err = putBack(dir, h, r)
		}
		if err != nil {
			return err
		}
		m := Mended{Path: h.Name}
		if kept {
			m.Kept = filepath.Join(dir, changedDir, h.Name)
		}
		mended = append(mended, m)
		return nil
	})
	return mended, err
}

// PutLink makes the link to the manifests again if it is gone, leads to a release that is
// gone, or is no link. id is the release that it must name. It reports whether it did.
func (a *App) PutLink(id string) (bool, error) {
	link := a.ManifestsDir()
	info, err := os.Lstat(link)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, err
	case info.Mode()&fs.ModeSymlink != 0:
		if _, err := os.Stat(link); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	case info.IsDir() && a.hasAdopted():
		return false, nil // an adoption was interrupted
	default:
		if _, err := keepAside(link); err != nil {
			return false, err
		}
	}
	if _, err := os.Stat(a.ReleaseManifests(id)); err != nil {
		return false, nil // it would lead nowhere
	}
	return true, a.Point(id)
}

func (a *App) hasAdopted() bool {
	_, err := os.Lstat(a.ReleaseManifests(AdoptedID))
	return err == nil
}

// readCopy calls f for each member of a copy. The content that f is given is right only if
// there is no error in the end.
func readCopy(path string, f func(*tar.Header, io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	gz, err := gzip.NewReader(file)
	if err != nil {
		return &CorruptError{path, err}
	}
	tr := tar.NewReader(gz)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && !filepath.IsLocal(h.Name) {
			err = fmt.Errorf("it has a member %q", h.Name)
		}
		if err != nil {
			return &CorruptError{path, err}
		}
		content := &source{r: tr}
		if err := f(h, content); err != nil {
			if content.err != nil {
				return &CorruptError{path, content.err}
			}
			return err
		}
	}
	if _, err := io.Copy(io.Discard, gz); err != nil { // to its checksum
		return &CorruptError{path, err}
	}
	return nil
}

// source remembers an error of reading.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// likeness says how a file is to its member of the copy.
type likeness int

const (
	same likeness = iota
	different
	damaged // missing, unreadable, hollow, or of another type
)

// look compares a file with its member of the copy.
func look(root *os.Root, h *tar.Header, r io.Reader) (likeness, error) {
	info, err := root.Lstat(h.Name)
	if err != nil || info.Mode().Type() != h.FileInfo().Mode().Type() {
		return damaged, nil
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		if to, err := root.Readlink(h.Name); err != nil || to != h.Linkname {
			return different, nil
		}
		return same, nil
	case tar.TypeReg:
		f, err := root.Open(h.Name)
		if err != nil {
			return damaged, nil
		}
		defer f.Close()
		if is, err := compare(f, r); is != same || err != nil {
			return is, err
		}
	}
	if info.Mode().Perm() != h.FileInfo().Mode().Perm() {
		return different, nil
	}
	return same, nil
}

// compare compares the content of a file with what it must be. What a file system loses is
// empty, or zeros. Only an error of want is returned.
func compare(f, want io.Reader) (likeness, error) {
	a, b := make([]byte, 32<<10), make([]byte, 32<<10)
	is, empty, zeros, zerosWanted := same, true, false, false
	for {
		n, err := io.ReadFull(want, a)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return damaged, err
		}
		m, ferr := io.ReadFull(f, b)
		if ferr != nil && !errors.Is(ferr, io.EOF) && !errors.Is(ferr, io.ErrUnexpectedEOF) {
			return damaged, nil
		}
		if !bytes.Equal(a[:n], b[:m]) {
			is = different
		}
		empty = empty && m == 0
		zeros, zerosWanted = zeros || bytes.IndexByte(b[:m], 0) >= 0, zerosWanted || bytes.IndexByte(a[:n], 0) >= 0
		if n == 0 || m == 0 && is == different {
			break // of a file that has grown, the rest says nothing
		}
	}
	if is == different && (empty || zeros && !zerosWanted) {
		return damaged, nil
	}
	return is, nil
}

// putAside moves what is in the place of a member into changedDir, if it may be somebody's
// work; otherwise it removes it. It reports whether there is something to look at.
func putAside(dir string, h *tar.Header) (kept bool, err error) {
	at := filepath.Join(dir, h.Name)
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() && h.Typeflag == tar.TypeDir {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.Mode().IsRegular() && info.Size() == 0 {
		return false, durable.Remove(at)
	}
	to := filepath.Join(dir, changedDir, h.Name)
	if err := durable.RemoveAll(to); err != nil {
		return false, err
	}
	if err := durable.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return false, err
	}
	return true, durable.Rename(at, to)
}

// putBack writes a member to its place.
func putBack(dir string, h *tar.Header, r io.Reader) error {
	at, perm := filepath.Join(dir, h.Name), h.FileInfo().Mode().Perm()
	if h.Typeflag == tar.TypeDir {
		if err := durable.MkdirAll(at, perm); err != nil {
			return err
		}
		return os.Chmod(at, perm) // whatever the umask is
	}
	if err := durable.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeSymlink {
		return durable.Symlink(h.Linkname, at)
	}
	f, err := durable.Create(at)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return f.Commit(at, perm)
}

// copiedRelease reads release.json of a release's copy.
func (a *App) copiedRelease(id string) (data []byte, err error) {
	found := errors.New("found")
	err = readCopy(filepath.Join(a.releaseDir(id), copyFile), func(h *tar.Header, r io.Reader) error {
		if h.Name != releaseFile || h.Size > maxFile {
			return nil
		}
		if data, err = io.ReadAll(r); err != nil {
			return err
		}
		return found
	})
	if errors.Is(err, found) {
		return data, nil
	}
	return nil, errors.Join(err, fs.ErrNotExist)
}
