package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/secrets"
)

// Encrypted secrets: a Compose file names the file of a secret, and the manifests
// have that file encrypted, with .age after its name. Compose bind-mounts a secret's
// file, so the decrypted file lies on a tmpfs. Its name stays the same over releases
// as long as its content does, and the generated Compose file refers to it.

// sealedSecret is a secret that the manifests hold encrypted.
type sealedSecret struct {
	secrets.File
	name   string // of the decrypted file
	path   string // where it is
	sealed []byte // as it is in the manifests
}

// maxSecrets bounds all decrypted secrets of a release together, in bytes.
const maxSecrets = 16 << 20

// secretsName is the directory of the records beside the manifests.
const secretsName = "secrets"

// secretsDir is where the application's secrets are decrypted to. Only manifests in
// mender-app's store have records, which survive a restart of the machine.
func (s *session) secretsDir(dir string) *secrets.Dir { return secretsDir(s.set, s.req.App, dir) }

func secretsDir(set settings, app, dir string) *secrets.Dir {
	records := ""
	if dir != "" && ownDirectory(app, dir) {
		if fi, err := os.Lstat(filepath.Dir(dir)); err == nil && fi.IsDir() {
			records = filepath.Join(filepath.Dir(dir), secretsName)
		}
	}
	return set.secrets.ForApplication(app, records)
}

// decrypt decrypts the project's secrets into memory.
func (s *session) decrypt(ctx context.Context, p *project) error {
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	p.sealed = map[string]sealedSecret{}
	var keys *secrets.Keys
	total := 0
	for name, o := range p.model.Secrets {
		rel, err := filepath.Rel(p.dir, o.File)
		if o.File == "" || err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if _, err := root.Lstat(rel); !errors.Is(err, fs.ErrNotExist) {
			continue // in plain; Compose says what is wrong with it
		}
		if _, err := root.Lstat(rel + names.EncryptedSuffix); err != nil {
			continue
		}
		if keys == nil {
			if keys, err = s.set.secrets.Keys(ctx); err != nil {
				return invalid("secret %s is encrypted: %w", name, err)
			}
		}
		secret := sealedSecret{}
		info := fs.FileInfo(nil)
		if secret.Text, info, err = keys.DecryptFile(root, rel+names.EncryptedSuffix, names.MaxSecret); err != nil {
			return invalid("secret %s: %w", name, err)
		}
		if total += len(secret.Text); total > maxSecrets {
			return invalid("the secrets are more than %d MiB together", maxSecrets>>20)
		}
		if secret.sealed, err = root.ReadFile(rel + names.EncryptedSuffix); err != nil {
			return err
		}
		secret.Mode = info.Mode().Perm()
		owner, err := p.model.rules().Owner(name)
		if err != nil {
			return content(err)
		}
		secret.UID, secret.GID = owner.UID, owner.GID
		if owner.Mode != nil {
			secret.Mode = *owner.Mode
		}
		secret.name = keys.Name(secret.File)
		secret.path = s.secretsDir(p.dir).Path(secret.name)
		p.sealed[name] = secret
	}
	return nil
}

// putSecrets writes the decrypted secrets to the tmpfs. No running service uses
// these files yet.
func (s *session) putSecrets(p *project) error {
	if len(p.sealed) == 0 {
		return nil
	}
	d := s.secretsDir(p.dir)
	if err := d.Ready(); err != nil {
		return fmt.Errorf("secrets: %w", err)
	}
	for name, secret := range p.sealed {
		if err := d.Record(secret.name, secret.File, secret.sealed); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
		if _, err := d.Put(secret.name, secret.File); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// sweepSecrets removes the secrets that neither this release nor any container
// uses.
func (s *session) sweepSecrets(ctx context.Context, p *project) error {
	d := s.secretsDir(p.dir)
	used := map[string]bool{}
	for _, secret := range p.sealed {
		used[secret.path] = true
	}
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return err
	}
	for _, ct := range all {
		for _, m := range ct.Mounts {
			used[m.Source] = true
		}
	}
	return d.Sweep(func(name string) bool { return used[d.Path(name)] })
}

// Restore implements submodules.Session. It decrypts the recorded secrets of an
// application again.
func (s *session) Restore(ctx context.Context, _ submodules.Request) error {
	dir, err := filepath.Abs(s.req.Dir)
	if err != nil {
		return err
	}
	d := s.secretsDir(dir)
	have, err := d.Recorded()
	if err != nil || !have {
		return err
	}
	keys, err := s.set.secrets.Keys(ctx)
	if err != nil {
		return submodules.Mark(err, submodules.ErrRequirement)
	}
	return d.Restore(keys)
}
