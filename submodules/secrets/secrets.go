// Package secrets decrypts the encrypted files in an application's manifests. They
// are encrypted with age (https://age-encryption.org/v1) to the X25519 keys of
// devices. Decrypted files are written to a tmpfs, never to a disk.
//
// The package must not know the purpose of a secret, an orchestrator or an engine.
// No error and no log line contains any part of a secret or of a key.
package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/mender-app/mender-app/submodules/config"
)

// maxHeader bounds the header of an encrypted file, in bytes: each recipient has
// about 100, and costs a computation with each key of the device.
const maxHeader = 64 << 10

// The defaults of the settings.
const (
	DefaultIdentity = "/etc/mender/mender-app/identity.age"
	DefaultTmpfs    = "/run/mender-app/secrets"
)

// Settings are the operator's settings for secrets.
type Settings struct {
	Identity string   // file with the device's keys
	Command  []string // command that prints the device's keys, used instead of Identity; nil: none
	Dir      string   // directory for decrypted files, on a tmpfs
}

// ReadSettings takes the settings from a sub-module's configuration.
func ReadSettings(f *config.File) (Settings, error) {
	s := Settings{
		Identity: f.String(DefaultIdentity, "SECRETS_IDENTITY", "secrets.identity"),
		Dir:      f.String(DefaultTmpfs, "SECRETS_DIR", "secrets.dir"),
	}
	var err error
	if s.Command, err = config.Words(f.String("", "SECRETS_IDENTITY_COMMAND", "secrets.identity_command")); err != nil {
		return s, fmt.Errorf("SECRETS_IDENTITY_COMMAND: %w", err)
	}
	return s, nil
}

// commandTime bounds SECRETS_IDENTITY_COMMAND. A key in a TPM takes some seconds.
const commandTime = 30 * time.Second

// Decrypt returns the content of an encrypted file, binary or armored, of at most
// limit bytes.
func (k *Keys) Decrypt(r io.Reader, limit int64) ([]byte, error) {
	// Armor adds a third, and the chunks of the payload add a little.
	sealed, err := readAll(r, 2*limit+2*maxHeader)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(sealed, []byte(armor.Header)) {
		if sealed, err = io.ReadAll(armor.NewReader(bytes.NewReader(sealed))); err != nil {
			return nil, errors.New("the file is damaged: its armor is not complete")
		}
	}
	if !bytes.HasPrefix(sealed, []byte("age-encryption.org/")) {
		return nil, errors.New("the file is not encrypted with age")
	}
	if !bytes.Contains(sealed[:min(len(sealed), maxHeader)], []byte("\n---")) {
		return nil, fmt.Errorf("the file is damaged, or its header is larger than %d KiB", maxHeader>>10)
	}
	var none *age.NoIdentityMatchError
	plain, err := age.Decrypt(bytes.NewReader(sealed), k.identities...)
	if errors.As(err, &none) {
		return nil, fmt.Errorf("it is not encrypted to this device's key (%s): encrypt it to this key as well, with app-gen --encrypt-secrets-to", k.from)
	}
	if err != nil {
		return nil, errors.New("the file is damaged: its header cannot be read")
	}
	text, err := readAll(plain, limit)
	if err != nil && !errors.Is(err, errTooLarge) {
		err = errors.New("the file is damaged: it is cut off or changed")
	}
	return text, err
}

var errTooLarge = errors.New("too large")

// readAll reads at most limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return b, err
}

// DecryptFile decrypts the file name below root. Its errors contain names relative
// to root.
func (k *Keys) DecryptFile(root *os.Root, name string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a file", name)
	}
	text, err := k.Decrypt(f, limit)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, info, nil
}
