package deploy

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// A component of another type than image is a file, and its identity is the
// SHA-256 of the file. It is compared here, before the sub-module gets the file,
// whatever the sub-module verifies itself.

// typeFile is the type of a file where neither the artifact nor the sub-module
// says what it is.
const typeFile = "file"

// isFile tells whether a component is a file. Of an artifact that does not name
// its components (the shell reference's), that is known only after its content
// was seen.
func isFile(c store.Component) bool { return c.Type != artifact.ComponentImage }

// nameless tells whether what the components are is not known from the metadata,
// and the sub-module does not verify them.
func (l *loader) nameless() bool {
	return len(l.h.meta.Components) == 0 && !l.info.Has(submodules.FeatureComponents)
}

// checkContent compares a component that was spooled to path with its digest. It
// returns the component's type.
func (l *loader) checkContent(c store.Component, path string) (typ string, err error) {
	if !isFile(c) && !l.nameless() {
		return c.Type, nil
	}
	if !isFile(c) {
		archive, err := isImageArchive(path)
		if err != nil {
			return "", err
		}
		if archive {
			return c.Type, nil
		}
		c.Type = typeFile
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

// sumOf returns the digest of a file.
func sumOf(path string) (digest.Digest, error) {
	f, err := os.Open(path)
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

// isImageArchive tells whether a file is an archive of images: a tar with the
// list of images that docker save and OCI layouts have.
func isImageArchive(path string) (bool, error) {
	f, err := os.Open(path)
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

// setType records the type of a component of the release.
func (l *loader) setType(c store.Component, typ string) error {
	if c.Type == typ {
		return nil
	}
	for i := range l.r.Components {
		if r := &l.r.Components[i]; r.URL == c.URL && r.Digest == c.Digest {
			r.Type = typ
		}
	}
	return l.a.PutRelease(l.r)
}

// askTypes asks the sub-module for the types of the components of an artifact
// that does not say them. What it does not say stays as it is.
func (l *loader) askTypes(ctx context.Context) error {
	if !l.nameless() || len(l.r.Components) == 0 {
		return nil
	}
	var list []submodules.Component
	if err := l.call(ctx, submodules.VerbList, l.request(), into(&list, l.o.List)); err != nil {
		if ctx.Err() != nil {
			return err
		}
		l.e.Log.Warn("the types of the components are not known", "app", l.app, "error", err)
		return nil
	}
	types := typesOf(list)
	for _, c := range slices.Clone(l.r.Components) {
		if typ, ok := types[c.URL]; ok {
			if err := l.setType(c, typ); err != nil {
				return err
			}
		}
	}
	return nil
}

// typesOf are the types that LIST says, by URL; without those that are no types.
func typesOf(list []submodules.Component) map[string]string {
	types := map[string]string{}
	for _, c := range list {
		if names.CheckType(c.Type) == nil {
			types[c.URL] = c.Type
		}
	}
	return types
}

// verifySaved verifies one component of a sub-module without the feature verify:
// SAVE writes it, and its SHA-256 is compared. It needs the lock.
func (t *target) verifySaved(ctx context.Context, c store.Component) (problems []string, err error) {
	tmp, err := t.e.temp()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	path := filepath.Join(tmp, "component")
	req := t.only(c).request()
	req.URL, req.Path = c.URL, path
	err = t.call(ctx, submodules.VerbSave, req, t.o.Save)
	if errors.Is(err, submodules.ErrNotFound) {
		return []string{c.URL + ": it is missing"}, nil
	}
	if err != nil {
		return nil, err
	}
	sum, err := sumOf(path)
	if err != nil || sum == c.Digest {
		return nil, err
	}
	if archive, err := isImageArchive(path); !isFile(c) && (archive || err != nil) {
		return nil, errors.Join(cannotVerify(t), err) // an image is not the same file each time
	}
	return []string{fmt.Sprintf("%s: it is %s, and should be %s", c.URL, sum, c.Digest)}, nil
}

func cannotVerify(t *target) error {
	return fmt.Errorf("%w: sub-module %s cannot verify", submodules.ErrUsage, t.r.Orchestrator)
}
