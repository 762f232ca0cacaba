package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/scratch"
)

// tokenScheme is how the URI of a key in a PKCS #11 token begins (RFC 7512).
const tokenScheme = "pkcs11:"

// tokenURI has the parts of a PKCS #11 URI that are used here.
type tokenURI struct {
	token, object, id string
	module            string // path of the PKCS #11 library; "" is the tool's default
	pin               string // as pkcs11-tool takes it; "" asks for none
	env               []string
}

// pinVariable passes the PIN on, so that no list of processes shows it.
const pinVariable = "APP_GEN_PKCS11_PIN"

// parseTokenURI reads pkcs11:token=…;object=…;id=…?module-path=…&pin-source=…, as RFC
// 7512 defines it. Attributes it does not know are errors: they would choose
// another key.
func parseTokenURI(s string) (*tokenURI, error) {
	rest, ok := strings.CutPrefix(s, tokenScheme)
	if !ok {
		return nil, fmt.Errorf("%q does not begin with %s", s, tokenScheme)
	}
	path, query, _ := strings.Cut(rest, "?")
	u := &tokenURI{}
	pinValue, pinSource := "", ""
	for _, part := range append(strings.Split(path, ";"), strings.Split(query, "&")...) {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		value, err := url.PathUnescape(value)
		if err != nil {
			return nil, fmt.Errorf("PKCS #11 URI: %s: %w", name, err)
		}
		switch name {
		case "token":
			u.token = value
		case "object":
			u.object = value
		case "id":
			u.id = hex.EncodeToString([]byte(value))
		case "type":
			if value != "private" {
				return nil, fmt.Errorf("PKCS #11 URI: type %q is not private", value)
			}
		case "module-path":
			u.module = value
		case "pin-value":
			pinValue = value
		case "pin-source":
			pinSource = strings.TrimPrefix(value, "file:")
		default:
			return nil, fmt.Errorf("PKCS #11 URI: the attribute %q is not supported", name)
		}
	}
	if u.object == "" && u.id == "" {
		return nil, fmt.Errorf("PKCS #11 URI: it names no key: give object=LABEL or id=%%XX")
	}
	if u.module == "" {
		u.module = os.Getenv("PKCS11_MODULE_PATH")
	}
	if pinSource != "" {
		b, err := os.ReadFile(pinSource)
		if err != nil {
			return nil, fmt.Errorf("PKCS #11 URI: pin-source: %w", err)
		}
		pinValue = strings.TrimRight(string(b), "\r\n")
	}
	if pinValue != "" {
		u.pin, u.env = "env:"+pinVariable, []string{pinVariable + "=" + pinValue}
	} else if os.Getenv(pinVariable) != "" {
		u.pin = "env:" + pinVariable
	}
	return u, nil
}

// pkcs11Tool is OpenSC's program for PKCS #11 tokens. Using it instead of a library
// keeps app-gen free of cgo, which every PKCS #11 module needs.
const pkcs11Tool = "pkcs11-tool"

// args are the arguments that choose module and token, and log in.
func (u *tokenURI) args(more ...string) []string {
	args := []string{pkcs11Tool}
	if u.module != "" {
		args = append(args, "--module", u.module)
	}
	if u.token != "" {
		args = append(args, "--token-label", u.token)
	}
	if u.pin != "" {
		args = append(args, "--login", "--pin", u.pin)
	}
	return append(args, more...)
}

// find finds the id of the private key. pkcs11-tool signs with a token's first
// key if it is given a label alone (OpenSC 0.23).
func (u *tokenURI) find(ctx context.Context) (id string, err error) {
	if u.id != "" && u.object == "" {
		return u.id, nil
	}
	list, err := runSigner(ctx, u.args("--list-objects", "--type", "privkey"), u.env, nil)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, object := range strings.Split(string(list), "Private Key Object")[1:] {
		label, id := "", ""
		for line := range strings.Lines(object) {
			name, value, _ := strings.Cut(line, ":")
			switch strings.TrimSpace(name) {
			case "label":
				label = strings.TrimSpace(value)
			case "ID":
				id = strings.TrimSpace(value)
			}
		}
		if label == u.object && id != "" && (u.id == "" || u.id == id) {
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", fmt.Errorf("%w: the token has no private key %q with an id", errSigning, u.object)
	}
	return "", fmt.Errorf("%w: the token has several private keys %q: choose one with id=%%XX", errSigning, u.object)
}

// sha256Info is the DER of a DigestInfo for SHA-256 up to the digest (RFC 8017,
// 9.2). A token's mechanism RSA-PKCS signs what it gets, so that this has to come
// before the digest.
var sha256Info = []byte{0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20}

// tokenSigner returns a Signer that uses a key in a PKCS #11 token, by OpenSC's
// pkcs11-tool. public is its public key; nil reads it from the token, where it
// has the same label or id.
func tokenSigner(ctx context.Context, keyURI string, public crypto.PublicKey) (*outsideSigner, error) {
	u, err := parseTokenURI(keyURI)
	if err != nil {
		return nil, err
	}
	id, err := u.find(ctx)
	if err != nil {
		return nil, err
	}
	if public == nil {
		der, err := runSigner(ctx, u.args("--read-object", "--type", "pubkey", "--id", id), u.env, nil)
		if err == nil {
			public, err = x509.ParsePKIXPublicKey(der)
		}
		if err != nil {
			return nil, fmt.Errorf("read the public key from the token: %w", err)
		}
	}
	mechanism, prefix := "", []byte(nil)
	switch public.(type) {
	case *rsa.PublicKey:
		mechanism, prefix = "RSA-PKCS", sha256Info
	case *ecdsa.PublicKey:
		mechanism = "ECDSA"
	default:
		return nil, fmt.Errorf("a token's key of the type %T cannot sign artifacts", public)
	}
	sign := func(digest []byte) ([]byte, error) {
		// pkcs11-tool takes what a pipe delivers in pieces for several pieces
		dir, err := scratch.Dir("", scratch.HostPrefix)
		if err != nil {
			return nil, err
		}
		defer scratch.Remove(dir)
		in := filepath.Join(dir, "digest")
		if err := os.WriteFile(in, append(append([]byte(nil), prefix...), digest...), 0o600); err != nil {
			return nil, err
		}
		return runSigner(ctx, u.args("--sign", "--mechanism", mechanism, "--id", id, "--input-file", in), u.env, nil)
	}
	return &outsideSigner{Public: public, Sign: sign}, nil
}
