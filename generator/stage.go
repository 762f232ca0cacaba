package generator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/generator/manifests"
)

// packManifests packs the manifests directory, with the variables added to its
// .env and the secrets encrypted.
func (r *run) packManifests(used *manifests.Found, p *payload) (err error) {
	dir := r.Application.ManifestsDir
	p.sealed = used.Encrypted
	if len(used.Encrypt) > 0 {
		p.sealed, p.recipients = true, r.recipients.Names
	}
	if len(used.Ship)+len(used.Encrypt) > 0 {
		if dir, err = r.stage(used); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
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

// stage copies the manifests directory. It encrypts the secrets, and appends the
// variables to the .env: the last value of a name counts.
func (r *run) stage(used *manifests.Found) (string, error) {
	to := filepath.Join(r.temp, "manifests")
	from, err := os.OpenRoot(r.Application.ManifestsDir)
	if err != nil {
		return "", fmt.Errorf("manifests directory: %w", err)
	}
	defer from.Close()
	err = fs.WalkDir(from.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, path)
		switch {
		case d.IsDir():
			return os.Mkdir(target, info.Mode().Perm()|0o700)
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := from.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		b, err := from.ReadFile(path)
		if err != nil {
			return err
		}
		if slices.Contains(used.Encrypt, filepath.ToSlash(path)) {
			if b, err = r.recipients.Seal(b); err != nil {
				return fmt.Errorf("encrypt %s: %w", path, err)
			}
			target += manifests.EncryptedSuffix
		}
		if err := os.WriteFile(target, b, 0o600); err != nil {
			return err
		}
		return os.Chmod(target, info.Mode().Perm())
	})
	if err != nil {
		return "", &WriteError{Err: err}
	}
	if len(used.Ship) == 0 {
		return to, nil
	}
	file := filepath.Join(to, ".env")
	var text strings.Builder
	b, err := os.ReadFile(file) // may be a link: CheckTree refuses those that lead out
	if err == nil {
		text.Write(b)
		if len(b) > 0 && b[len(b)-1] != '\n' {
			text.WriteByte('\n')
		}
		if err := os.Remove(file); err != nil {
			return "", &WriteError{Err: err}
		}
	}
	text.WriteString("# resolved on the build host\n")
	for _, v := range used.Ship {
		text.WriteString(v.Name + "=" + quoteEnv(v.Value) + "\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return "", &WriteError{Err: err}
	}
	return to, nil
}

// quoteEnv writes a value so that an env file gives it back as it is: within
// single quotes nothing is expanded, and a single quote needs double ones.
func quoteEnv(v string) string {
	if !strings.ContainsAny(v, "'\n") {
		return "'" + v + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "\n", `\n`).Replace(v) + `"`
}
