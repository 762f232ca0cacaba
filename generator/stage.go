package generator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/generator/manifests"
)

// packManifests packs the manifests directory, with the variables added to its
// .env and the secrets encrypted.
func (r *run) packManifests(used *manifests.Found, p *payload) (err error) {
	p.sealed = used.Encrypted
	if len(used.Encrypt) > 0 {
		p.sealed, p.recipients = true, r.recipients.Names
	}
	if len(used.Ship)+len(used.Encrypt) > 0 {
		if err := r.changeManifests(used); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(r.tree)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	f, err := os.Create(filepath.Join(r.temp, artifact.ManifestsPayload))
	if err != nil {
		return &WriteError{Err: err}
	}
	size, err := artifact.WriteManifests(f, root.FS())
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &WriteError{Err: cerr}
	}
	var write *WriteError
	if err != nil && !errors.As(err, &write) {
		return &ManifestError{Dir: r.Application.ManifestsDir, Err: &manifests.Error{Place: manifests.Place{File: "."}, Text: err.Error()}}
	}
	if err != nil {
		return err
	}
	p.manifests = f.Name()
	p.digest, p.sizes.ManifestsPayload, p.sizes.Manifests = size.Digest, size.Payload, size.Files
	return nil
}

// openManifests checks what is shipped of the manifests directory. If something in it
// is not shipped, r.tree becomes a copy without it.
func (r *run) openManifests() error {
	dir := r.Application.ManifestsDir
	ignore, err := manifests.ReadIgnore(dir)
	if err == nil {
		err = manifests.CheckTree(dir, ignore)
	}
	r.tree, r.ignored = dir, ignore.Ignored
	if err == nil && ignore != nil {
		err = r.copyManifests(ignore)
	}
	return r.inManifests(err)
}

// copyManifests makes r.tree a copy. Its name is that of the directory, because that
// is the name of a Compose project.
func (r *run) copyManifests(ignore *manifests.Ignore) error {
	dir, err := filepath.Abs(r.tree)
	if err != nil {
		return err
	}
	to := filepath.Join(r.temp, "shipped", filepath.Base(dir))
	if err := manifests.CopyTree(dir, to, ignore); err != nil {
		return err
	}
	r.tree = to
	return nil
}

// inTree names files of the manifests directory as they are named in r.tree.
func (r *run) inTree(files []string) ([]string, error) {
	list := slices.Clone(files)
	for i, f := range files {
		if !filepath.IsAbs(f) {
			continue
		}
		dir, err := filepath.Abs(r.Application.ManifestsDir)
		if err != nil {
			return nil, err
		}
		if rel, err := filepath.Rel(dir, f); err == nil && filepath.IsLocal(rel) {
			list[i] = rel
		}
	}
	return list, nil
}

// suspectManifests warns of what was probably not meant to be shipped.
func (r *run) suspectManifests(used *manifests.Found) error {
	var known []string
	if used != nil {
		known = slices.Concat(used.Encrypt, used.Plain)
	}
	list, err := manifests.Suspects(r.tree, known)
	r.warnings = append(r.warnings, list...)
	return err
}

// changeManifests encrypts the secrets and adds the variables, in a copy.
func (r *run) changeManifests(used *manifests.Found) error {
	if r.tree == r.Application.ManifestsDir {
		if err := r.copyManifests(nil); err != nil {
			return err
		}
	}
	if err := manifests.EncryptFiles(r.tree, used.Encrypt, r.recipients.Seal); err != nil {
		return err
	}
	return manifests.AddVariables(r.tree, used.Ship)
}

// inManifests adds the directory to an error about manifests.
func (r *run) inManifests(err error) error {
	var e *manifests.Error
	if errors.As(err, &e) {
		return &ManifestError{Dir: r.Application.ManifestsDir, Err: e}
	}
	return err
}
