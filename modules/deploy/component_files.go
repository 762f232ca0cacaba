package deploy

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file is what a deployment needs for components that are files: their
// digests, the copies that releases have of them, and deltas. It calls no
// sub-module.

// isFile reports whether a component is a file. Of an artifact that does not name its
// components (the shell reference's), that is known only after its content was
// seen.
func isFile(c store.Component) bool { return c.Type != artifact.ComponentImage }

// unknownType is the type of a file where neither the artifact nor the sub-module says
// what it is.
const unknownType = "file"

// checkContent compares a component's content at path with its digest, if the
// component is a file, and returns the component's type. nameless: it is called an
// image because nothing says what it is.
func checkContent(c store.Component, path string, nameless bool) (typ string, err error) {
	if !isFile(c) && nameless {
		archive, err := isImageArchive(path)
		if err != nil {
			return "", err
		}
		if !archive {
			c.Type = unknownType
		}
	}
	if !isFile(c) {
		return c.Type, nil
	}
	return c.Type, checkSum(path, c.Digest)
}

// checkSum compares a file with its digest.
func checkSum(path string, want digest.Digest) error {
	got, err := sumOf(path)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%w: the file is %s, and should be %s", artifact.ErrPayload, got, want)
	}
	return nil
}

// openFile opens a file that a sub-module may have written: nothing else than a file.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.Join(fmt.Errorf("%s is not a file", path), err)
	}
	return f, nil
}

// sumOf returns the digest of a file.
func sumOf(path string) (digest.Digest, error) {
	f, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return digest.OfHash(h), nil
}

// maxArchiveMembers bounds the search for what makes a tar an archive of images.
const maxArchiveMembers = 10000

// isImageArchive reports whether a file is an archive of images: a tar with the
// list of images that docker save and OCI layouts have.
func isImageArchive(path string) (bool, error) {
	f, err := openFile(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	tr := tar.NewReader(f)
	for range maxArchiveMembers {
		h, err := tr.Next()
		if err != nil {
			return false, nil // no tar, or its end
		}
		if name := filepath.Clean(h.Name); name == "manifest.json" || name == "index.json" || name == "repositories" {
			return true, nil
		}
	}
	return false, nil
}

// listedTypes returns the types in the reply of LIST, by URL, without malformed ones.
func listedTypes(list []submodules.Component) map[string]string {
	types := map[string]string{}
	for _, c := range list {
		if names.CheckType(c.Type) == nil {
			types[c.URL] = c.Type
		}
	}
	return types
}

// spool writes content of the given size to a temporary file, if there is enough
// space.
func spool(path string, content io.Reader, size int64) error {
	room, err := diskspace.Room(filepath.Dir(path), diskspace.Free)
	if err != nil {
		return err
	}
	if size > room {
		return fmt.Errorf("not enough space on the file system of %s: the image takes %s and %s may be used: free some and try again",
			filepath.Dir(path), metered.Human(size), metered.Human(room))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// spools reports whether the sub-module needs the content of an image as a file:
// it cannot read a stream, or it does not identify components by digest and must
// load an image once for each of its names.
func spools(info submodules.Info, severalNames bool) bool {
	return !info.Has(submodules.FeatureStream) || severalNames && !info.Has(submodules.FeatureComponents)
}
