package mender

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// LoadPrivateKey reads a PEM private key for signing: RSA, ECDSA P-256 or
// Ed25519, in PKCS #8, PKCS #1 or SEC 1, not encrypted. Only this package verifies
// Ed25519 signatures: mender-artifact's own signer and the Mender clients support RSA
// and ECDSA (as of their sources of July 2026).
func LoadPrivateKey(b []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			if block.Headers["DEK-Info"] != "" {
				return nil, errEncrypted
			}
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			if block.Headers["DEK-Info"] != "" {
				return nil, errEncrypted
			}
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errEncrypted
		default: // EC PARAMETERS, a certificate
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, errKind
		}
		return signer, checkPublic(signer.Public())
	}
	return nil, fmt.Errorf("%w: no private key in PEM form in it", ErrKey)
}

var errEncrypted = fmt.Errorf("%w: it is encrypted; decrypt it first, for example with openssl pkey", ErrKey)

var errKind = fmt.Errorf("%w: want RSA, ECDSA on P-256, or Ed25519", ErrKey)

// LoadPublicKey reads a PEM public key for verification: RSA, ECDSA P-256 or
// Ed25519, in PKIX or PKCS #1, or a certificate's.
func LoadPublicKey(b []byte) (crypto.PublicKey, error) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		var key crypto.PublicKey
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var cert *x509.Certificate
			if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
				key = cert.PublicKey
			}
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
		return key, checkPublic(key)
	}
	return nil, fmt.Errorf("%w: no public key in PEM form in it", ErrKey)
}

func checkPublic(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey, ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return nil
		}
	}
	return errKind
}

// scalar is the size of each of the two numbers of an ECDSA signature.
const scalar = 32

// Signature signs a message the way the manifest of an artifact is signed, with Sign
// or Key; it returns nil without either. manifest.sig has it in base64: RSA PKCS #1
// v1.5, ECDSA's r and s side by side, or Ed25519 (RFC 8032), over the message's
// SHA-256. Ed25519 signs the 32 bytes of the sum, which mender-artifact also gives a
// Keyfactor SignServer.
func (o Options) Signature(message []byte) ([]byte, error) {
	switch {
	case o.Sign != nil:
		return signExternal(o.Sign, o.Public, message)
	case o.Key != nil:
		return sign(o.Key, message)
	}
	return nil, nil
}

// VerifySignature returns an ErrSignature unless the key made the signature of the
// message, in the form that Options.Signature returns.
func VerifySignature(key crypto.PublicKey, message, signature []byte) error {
	if err := verify(key, message, signature); err != nil {
		return fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return nil
}

// EncodePublicKey writes a public key as LoadPublicKey reads it: PEM, PKIX.
func EncodePublicKey(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), nil
}

// Fingerprint names a public key: "sha256:" and the hex digest of its PKIX form
// in DER, which openssl pkey -pubin -outform DER writes.
func Fingerprint(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(der)), nil
}

func sign(key crypto.Signer, manifest []byte) ([]byte, error) {
	if err := checkPublic(key.Public()); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(manifest)
	var hash crypto.Hash = crypto.SHA256
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		hash = 0 // a message, not its hash
	}
	random := rand.Reader
	if _, ok := key.(*ecdsa.PrivateKey); ok {
		random = nil // RFC 6979: the same content has the same signature
	}
	sig, err := key.Sign(random, sum[:], hash)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if _, ok := key.Public().(*ecdsa.PublicKey); ok {
		var rs struct{ R, S *big.Int }
		if _, err := asn1.Unmarshal(sig, &rs); err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		sig = make([]byte, 2*scalar)
		rs.R.FillBytes(sig[:scalar])
		rs.S.FillBytes(sig[scalar:])
	}
	return sig, nil
}

func verify(key crypto.PublicKey, manifest, sig []byte) error {
	sum := sha256.Sum256(manifest)
	switch k := key.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], sig)
	case ed25519.PublicKey:
		if ed25519.Verify(k, sum[:], sig) {
			return nil
		}
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() || len(sig) != 2*scalar {
			break
		}
		r, s := new(big.Int).SetBytes(sig[:scalar]), new(big.Int).SetBytes(sig[scalar:])
		if ecdsa.Verify(k, sum[:], r, s) {
			return nil
		}
	}
	return errors.New("it was not made with the key")
}
