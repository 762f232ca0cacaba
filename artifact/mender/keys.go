package mender

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// LoadPrivateKey reads a PEM private key for signing: RSA or ECDSA P-256, in
// PKCS #8, PKCS #1 or SEC 1, not encrypted.
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
			return nil, fmt.Errorf("%w: want RSA or ECDSA on P-256", ErrKey)
		}
		return signer, checkPublic(signer.Public())
	}
	return nil, fmt.Errorf("%w: no private key in PEM form in it", ErrKey)
}

var errEncrypted = fmt.Errorf("%w: it is encrypted; decrypt it first, as with openssl pkey", ErrKey)

// LoadPublicKey reads a PEM public key for verification: RSA or ECDSA P-256,
// in PKIX or PKCS #1, or a certificate's.
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
	case *rsa.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return nil
		}
	}
	return fmt.Errorf("%w: want RSA or ECDSA on P-256", ErrKey)
}

// scalar is the size of each of the two numbers of an ECDSA signature.
const scalar = 32

// sign makes the content of manifest.sig: base64 of RSA PKCS #1 v1.5, or of
// ECDSA's r and s side by side, over the manifest's SHA-256.
func sign(key crypto.Signer, manifest []byte) ([]byte, error) {
	if err := checkPublic(key.Public()); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(manifest)
	sig, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
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
	return base64.StdEncoding.AppendEncode(nil, sig), nil
}

// verify checks a manifest.sig against one key.
func verify(key crypto.PublicKey, manifest, encoded []byte) error {
	sig, err := base64.StdEncoding.AppendDecode(nil, encoded)
	if err != nil {
		return errors.New("it is not base64")
	}
	sum := sha256.Sum256(manifest)
	switch k := key.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], sig)
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
