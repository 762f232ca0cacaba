package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/generator"
)

// signing finds out who signs: a key in a file, a key in a token, a program, or
// nobody.
func (f *genFlags) signing(ctx context.Context) (s generator.Signing, err error) {
	if f.keyFile != "" && f.signCommand != "" {
		return s, &usageError{text: "--key and --sign-command exclude each other"}
	}
	token := strings.HasPrefix(f.keyFile, tokenScheme)
	if f.publicKey != "" {
		if !token && f.signCommand == "" {
			return s, &usageError{text: "--public-key without --sign-command or --key pkcs11:…", hint: "a private key file includes its public key"}
		}
		if s.Public, err = readKey("--public-key", f.publicKey, mender.LoadPublicKey); err != nil {
			return s, err
		}
	}
	var signer *outsideSigner
	switch {
	case f.dry && (token || f.signCommand != ""):
		return generator.Signing{}, nil // do not ask for a PIN that is not needed
	case token:
		signer, err = tokenSigner(ctx, f.keyFile, s.Public)
	case f.signCommand != "":
		signer, err = commandSigner(ctx, f.signCommand)
	case f.keyFile != "":
		var key crypto.Signer
		key, err = readKey("--key", f.keyFile, mender.LoadPrivateKey)
		return generator.Signing{Key: key}, err
	default:
		return s, nil
	}
	if err != nil && !errors.Is(err, errSigning) {
		return s, &usageError{text: err.Error()}
	}
	if err != nil {
		return s, err
	}
	if s.Sign = signer.Sign; s.Public == nil {
		s.Public = signer.Public
	}
	return s, nil
}

// readKey loads a key from a PEM file.
func readKey[K any](option, file string, load func([]byte) (K, error)) (k K, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return k, &usageError{text: option + ": " + err.Error()}
	}
	if k, err = load(b); err != nil {
		return k, fmt.Errorf("%s %s: %w", option, file, err)
	}
	return k, nil
}
