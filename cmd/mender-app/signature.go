package main

import (
	"crypto"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
)

// keyOptions are the options about signatures.
type keyOptions struct {
	Files    []string // --key
	Unsigned bool     // --unsigned
}

// Flags adds the options to a command.
func (k *keyOptions) Flags(f *pflag.FlagSet) {
	f.StringArrayVar(&k.Files, "key", nil, "public key (PEM) that must have signed the artifact (repeatable; one signature is enough)")
	f.BoolVar(&k.Unsigned, "unsigned", false, "do not check the signature, if no key is configured")
}

// again is what a later call on the same artifact has to be given, " " before it.
func (k keyOptions) again() (words string) {
	for _, file := range k.Files {
		words += " --key " + file
	}
	if k.Unsigned {
		words += " --unsigned"
	}
	return words
}

// Trusted returns the keys, one of which must have signed the artifact. It returns
// none, after a warning, if the artifact may be installed without a check.
func (o *artifactOpener) Trusted(k keyOptions) ([]device.Trusted, error) {
	keys, err := o.trusted(k)
	if err == nil && len(keys) == 0 {
		o.Log.Warn("the artifact's signature is not checked: no public key is configured")
	}
	return keys, err
}

func (o *artifactOpener) trusted(k keyOptions) ([]device.Trusted, error) {
	configured := o.Config.Signatures
	if configured.Err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrUsage, configured.Err)
	}
	keys := configured.Keys
	if len(k.Files) > 0 {
		keys = nil
		for _, file := range k.Files {
			keys = append(keys, device.Key{File: file})
		}
	}
	switch {
	case len(keys) > 0 && k.Unsigned:
		return nil, fmt.Errorf("%w: --unsigned is for devices without a key, and this one has %s", device.ErrUsage, keys[0].File)
	case len(keys) > 0:
		return configured.Read(keys)
	case !k.Unsigned && !configured.AllowUnsigned:
		return nil, fmt.Errorf("%w: there is no public key to check the artifact's signature with: set artifact_verify_key in %s or give --key, or install without a check with --unsigned",
			client.ErrRefused, o.Config.File)
	}
	return nil, nil
}

// signatureCheck is how the signature of an artifact is checked.
type signatureCheck struct {
	keys   []device.Trusted // one must have signed it
	err    error            // why it is refused in any case
	note   string           // why it is right without a check
	passed bool             // the update module learns who signed it
}

// toInstall is how mender-app install checks signatures.
func (o *artifactOpener) toInstall(k keyOptions) (c signatureCheck, err error) {
	if k.Unsigned && len(o.Config.Signatures.Keys) > 0 && len(k.Files) == 0 {
		_, err := o.Trusted(k)
		return c, err
	}
	c.passed = true
	switch c.keys, c.err = o.trusted(k); {
	case len(k.Files) > 0 && c.err != nil:
		return c, c.err
	case c.err == nil && len(c.keys) == 0:
		c.note = "it is not checked: no public key is configured"
	}
	return c, nil
}

// underMender is how the Mender client checks them.
func (o *artifactOpener) underMender() (c signatureCheck) {
	keys, err := o.Config.MenderKeys()
	if err == nil && len(keys) == 0 {
		c.note = "the Mender client does not check it: no public key is configured in " + o.Config.MenderConf
	}
	if err == nil {
		c.keys, err = device.ReadKeys(keys)
	}
	c.err = err
	return c
}

// open reads an artifact's header. signature is why its signer may not install it; err why
// it cannot be read.
func (c signatureCheck) open(in io.Reader) (r *mender.Reader, signature, err error) {
	signature = c.err
	options := mender.ReadOptions{PublicKeys: publics(c.keys), Refused: func(err error) { signature = err }}
	if r, err = mender.NewReader(in, options); err != nil || signature != nil || len(c.keys) == 0 {
		return r, signature, err
	}
	if meta, _, err := artifact.ParseMetadata(r.Header().MetaData); err == nil {
		signature = device.MayInstall(c.keys, r.Header(), meta.ApplicationName)
	}
	return r, signature, nil
}

// openArtifact reads an artifact's header. The artifact must be signed by one of
// the keys that may sign for its application. Without keys nothing is checked.
func openArtifact(in io.Reader, keys []device.Trusted) (*mender.Reader, error) {
	r, err := signedBy(in, keys)
	if err != nil || len(keys) == 0 {
		return r, err
	}
	meta, _, err := artifact.ParseMetadata(r.Header().MetaData)
	if err != nil {
		return nil, err
	}
	return r, device.MayInstall(keys, r.Header(), meta.ApplicationName)
}

// RepairSource reads an artifact that a repair takes layers from. If keys are
// configured, one of them must have signed it, whichever application the key is
// for. The digests of the layers are checked in any case.
func (o *artifactOpener) RepairSource(in io.Reader) (*mender.Reader, error) {
	if err := o.Config.Signatures.Err; err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrUsage, err)
	}
	keys, err := o.Config.Signatures.Read(o.Config.Signatures.Keys)
	if err != nil {
		return nil, err
	}
	return signedBy(in, slices.DeleteFunc(keys, func(k device.Trusted) bool { return k.Revoked }))
}

// signedBy opens an artifact. If there are keys, one of them must have signed it; who asks
// which of them, such as device.MayInstall, refuses those that are revoked.
func signedBy(in io.Reader, keys []device.Trusted) (*mender.Reader, error) {
	return mender.NewReader(in, mender.ReadOptions{PublicKeys: publics(keys)})
}

func publics(keys []device.Trusted) (list []crypto.PublicKey) {
	for _, k := range keys {
		list = append(list, k.Public)
	}
	return list
}
