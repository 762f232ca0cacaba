package manifests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/artifact/names"
)

// secret notes a compose secret. One that is shipped is to be encrypted, or is
// warned of.
func (c *composer) secret(name string, f types.FileObjectConfig) error {
	at := c.index.find("secrets", name)
	const plain = "is shipped in plain, and whoever has the artifact can read it"
	if f.Environment != "" {
		if c.opts.Encrypt {
			return &Error{Place: at, Text: fmt.Sprintf("secret %q is the variable %s, which cannot be encrypted", name, f.Environment), Hint: "put it into a file of its own"}
		}
		switch _, set := c.env[f.Environment]; {
		case !set:
			c.warn(at, "secret %q is the variable %s, which is not set: Compose on the device stops without it; set it in .env, pass this host's with --env-from-host %s, or name a file with the secret", name, f.Environment, f.Environment)
		case !slices.Contains(c.opts.Plain, name):
			c.warn(at, "secret %q %s: name a file of the device by its absolute path instead", name, plain)
		}
	}
	if f.File == "" {
		return nil
	}
	file := c.index.find("secrets", name, "file")
	if ofDevice(f.File) {
		return c.file("secret "+name, f.File, file, "secret")
	}
	if rel, ok := relative(c.dir, f.File); ok {
		_, err := os.Lstat(filepath.Join(c.dir, rel))
		_, eerr := os.Lstat(filepath.Join(c.dir, rel+names.EncryptedSuffix))
		switch {
		case err == nil && eerr == nil:
			return &Error{Place: file, Text: fmt.Sprintf("secret %s occurs twice, in plain and encrypted", name), Hint: "remove " + rel + " or " + rel + names.EncryptedSuffix}
		case eerr == nil:
			c.found.Encrypted = true
			return nil
		case err == nil && c.opts.Encrypt:
			return c.found.encrypt(c.dir, rel, file)
		}
		c.found.Plain = append(c.found.Plain, rel)
		if slices.Contains(c.opts.Plain, rel) {
			return c.file("secret "+name, f.File, file, "secret")
		}
	}
	if !slices.Contains(c.opts.Plain, name) {
		c.warn(at, "secret %q %s: encrypt it with --encrypt-secrets-to, or name a file of the device by its absolute path", name, plain)
	}
	return c.file("secret "+name, f.File, file, "secret")
}

// readElsewhere refuses to encrypt a file that is read as something else than a
// secret as well.
func (c *composer) readElsewhere() error {
	for _, secret := range c.found.Encrypt {
		for _, rel := range slices.Sorted(maps.Keys(c.read)) {
			if rel == secret || rel == "." || strings.HasPrefix(secret, rel+"/") {
				return &Error{Place: Place{File: secret}, Text: fmt.Sprintf("%s has this file too, and would not find it once it is encrypted", c.read[rel]), Hint: "give the secret a file of its own, outside of what is mounted"}
			}
		}
	}
	return nil
}

// encrypt notes a file that is to be encrypted.
func (f *Found) encrypt(dir, rel string, at Place) error {
	path := filepath.Join(dir, rel)
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	switch {
	case real != path:
		return &Error{Place: at, Text: rel + " cannot be encrypted: it is behind a link, and would stay there in plain", Hint: "name the file itself"}
	case !info.Mode().IsRegular():
		return &Error{Place: at, Text: rel + " cannot be encrypted: it is not a file", Hint: "make a secret of each file in it"}
	case info.Size() > names.MaxSecret:
		return &Error{Place: at, Text: fmt.Sprintf("%s cannot be encrypted: %d bytes are more than the %d that a secret may have", rel, info.Size(), names.MaxSecret)}
	}
	if !slices.Contains(f.Encrypt, rel) {
		f.Encrypt = append(f.Encrypt, rel)
	}
	return nil
}

// encrypt notes the file that was read, if it has Secrets with data.
func (k *kube) encrypt(dir, file string) error {
	if !k.opts.Encrypt || len(k.secrets) == 0 {
		return nil
	}
	at := k.secrets[0]
	if k.others {
		return &Error{Place: at, Text: "this Secret cannot be encrypted: its file has other objects than Secrets", Hint: "move the Secrets into a file of their own, which is encrypted whole"}
	}
	if _, err := os.Lstat(filepath.Join(dir, file+names.EncryptedSuffix)); err == nil {
		return &Error{Place: at, Text: file + " occurs twice, in plain and encrypted", Hint: "remove " + file + " or " + file + names.EncryptedSuffix}
	}
	return k.found.encrypt(dir, file, at)
}
