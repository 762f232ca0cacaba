package secrets

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"filippo.io/age"
)

// Limits on the file or output with the device's keys.
const (
	maxKeysFile = 64 << 10 // bytes
	maxKeys     = 16
)

// Keys are the keys of the device: the key in use, and older keys for releases that
// were encrypted to them.
type Keys struct {
	identities []age.Identity
	recipients []string // the public keys of identities, in the same order
	naming     []byte   // HMAC key for the names of decrypted files
	from       string   // the file or setting they were read from, for messages
}

// Keys reads the device's keys from the file or the command of the settings.
func (s Settings) Keys(ctx context.Context) (*Keys, error) {
	k := &Keys{from: s.Identity}
	text, err := []byte(nil), error(nil)
	if len(s.Command) > 0 {
		k.from = "SECRETS_IDENTITY_COMMAND"
		text, err = s.runCommand(ctx)
	} else {
		text, err = s.readFile()
	}
	if err != nil {
		return nil, err
	}
	line := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line++
		key := strings.TrimSpace(lines.Text())
		if key == "" || key[0] == '#' {
			continue
		}
		// The parser's own error contains parts of the key.
		identity, err := age.ParseX25519Identity(key)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d is not a key of age-keygen (AGE-SECRET-KEY-1…)", k.from, line)
		}
		if len(k.identities) == maxKeys {
			return nil, fmt.Errorf("%s: more than %d keys", k.from, maxKeys)
		}
		k.identities = append(k.identities, identity)
		k.recipients = append(k.recipients, identity.Recipient().String())
		if k.naming == nil {
			k.naming = []byte(identity.String())
		}
	}
	if len(k.identities) == 0 {
		return nil, fmt.Errorf("%s has no key: age-keygen makes one", k.from)
	}
	return k, nil
}

func (s Settings) readFile() ([]byte, error) {
	f, err := os.OpenFile(s.Identity, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("this device has no key for encrypted secrets: make one with age-keygen -o %s, or set SECRETS_IDENTITY or SECRETS_IDENTITY_COMMAND", s.Identity)
	}
	if err != nil {
		return nil, fmt.Errorf("the device's key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", s.Identity)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if info.Mode().Perm()&0o077 != 0 || owner != 0 && int(owner) != os.Geteuid() {
		return nil, fmt.Errorf("users other than root can read or change %s, which holds the device's key: chown root %[1]s; chmod 600 %[1]s", s.Identity)
	}
	text, err := readAll(f, maxKeysFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Identity, err)
	}
	return text, nil
}

// runCommand returns the command's standard output. Its standard error is left out
// of errors: it may contain parts of the key.
func (s Settings) runCommand(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.WaitDelay = commandTime / 10
	out := &output{}
	cmd.Stdout = out
	err := cmd.Run()
	switch {
	case out.over:
		return nil, fmt.Errorf("SECRETS_IDENTITY_COMMAND prints more than %d bytes", maxKeysFile)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("SECRETS_IDENTITY_COMMAND did not end within %v", commandTime)
	case err != nil:
		return nil, fmt.Errorf("SECRETS_IDENTITY_COMMAND failed (%w): run it by hand to see why", err)
	}
	return out.text, nil
}

// output keeps a command's standard output. A write of more than maxKeysFile fails,
// which closes the command's pipe.
type output struct {
	text []byte
	over bool
}

func (o *output) Write(p []byte) (int, error) {
	if o.over = o.over || len(o.text)+len(p) > maxKeysFile; o.over {
		return 0, errTooLarge
	}
	o.text = append(o.text, p...)
	return len(p), nil
}

// Check returns an error unless this device has keys and one of them is among the
// recipients. With no recipients, which means that they are unknown, it checks only
// that the device has keys.
func (s Settings) Check(ctx context.Context, recipients []string) error {
	k, err := s.Keys(ctx)
	if err != nil {
		return err
	}
	return k.Check(recipients)
}

// Check returns an error unless one of the device's keys is among the recipients. No
// recipients means that they are unknown, which is not an error.
func (k *Keys) Check(recipients []string) error {
	if len(recipients) == 0 || slices.ContainsFunc(k.recipients, func(r string) bool { return slices.Contains(recipients, r) }) {
		return nil
	}
	return fmt.Errorf("the secrets are not encrypted to this device's key, which is %s (%s): build the artifact with app-gen --encrypt-secrets-to %[1]s as well", k.recipients[0], k.from)
}

// Name returns the name of a decrypted file: an HMAC of its content, owner and mode
// with the device's key. Without the key, nobody can find a short password by
// hashing guesses.
func (k *Keys) Name(s File) string {
	mac := hmac.New(sha256.New, k.naming)
	fmt.Fprintf(mac, "mender-app secret %d %d %o\n", s.UID, s.GID, s.Mode)
	mac.Write(s.Text)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
