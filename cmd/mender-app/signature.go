package main

import (
	"fmt"
	"io"

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
	f.StringArrayVar(&k.Files, "key", nil, "public key (PEM) that must have signed the artifact; repeatable: one of them must")
	f.BoolVar(&k.Unsigned, "unsigned", false, "do not check the signature, if no key is configured")
}

// Trusted returns the keys, one of which must have signed the artifact. It returns
// none, after a warning, if the artifact may be installed without a check.
func (o *artifactOpener) Trusted(k keyOptions) ([]device.Trusted, error) {
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
		return device.ReadKeys(keys)
	case !k.Unsigned && !configured.AllowUnsigned:
		return nil, fmt.Errorf("%w: there is no public key to check the artifact's signature with: set artifact_verify_key in %s or give --key, or install without a check with --unsigned",
			client.ErrRefused, o.Config.File)
	}
	o.Log.Warn("the artifact's signature is not checked: no public key is configured")
	return nil, nil
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
	return r, device.MayReplace(keys, r.Header().SignedBy, meta.ApplicationName)
}

// RepairSource reads an artifact that a repair takes layers from. If keys are
// configured, one of them must have signed it, whichever application the key is
// for. The digests of the layers are checked in any case.
func (o *artifactOpener) RepairSource(in io.Reader) (*mender.Reader, error) {
	if err := o.Config.Signatures.Err; err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrUsage, err)
	}
	keys, err := device.ReadKeys(o.Config.Signatures.Keys)
	if err != nil {
		return nil, err
	}
	return signedBy(in, keys)
}

// signedBy opens an artifact. If there are keys, one of them must have signed it.
func signedBy(in io.Reader, keys []device.Trusted) (*mender.Reader, error) {
	var options mender.ReadOptions
	for _, k := range keys {
		options.PublicKeys = append(options.PublicKeys, k.Public)
	}
	return mender.NewReader(in, options)
}
