package main

import (
	"fmt"
	"io"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
)

// trusted returns the keys, one of which must have signed the artifact. It returns
// none, after a warning, if the artifact may be installed without a check.
func (p *program) trusted(o installOptions) ([]device.Trusted, error) {
	configured := p.config.Signatures
	if configured.Err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrUsage, configured.Err)
	}
	keys := configured.Keys
	if len(o.keys) > 0 {
		keys = nil
		for _, file := range o.keys {
			keys = append(keys, device.Key{File: file})
		}
	}
	switch {
	case len(keys) > 0 && o.unsigned:
		return nil, fmt.Errorf("%w: --unsigned is for devices without a key, and this one has %s", device.ErrUsage, keys[0].File)
	case len(keys) > 0:
		return device.ReadKeys(keys)
	case !o.unsigned && !configured.AllowUnsigned:
		return nil, fmt.Errorf("%w: there is no public key to check the artifact's signature with: set artifact_verify_key in %s or give --key, or install without a check with --unsigned",
			client.ErrRefused, p.config.File)
	}
	p.log.Warn("the artifact's signature is not checked: no public key is configured")
	return nil, nil
}

// openArtifact reads an artifact's header. The artifact must be signed by one of
// the keys that may sign for its application. Without keys nothing is checked.
func (p *program) openArtifact(in io.Reader, keys []device.Trusted) (*mender.Reader, error) {
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

// openRepairSource reads an artifact that a repair takes layers from. If keys are
// configured, one of them must have signed it, whichever application the key is
// for. The digests of the layers are checked in any case.
func (p *program) openRepairSource(in io.Reader) (*mender.Reader, error) {
	if err := p.config.Signatures.Err; err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrUsage, err)
	}
	keys, err := device.ReadKeys(p.config.Signatures.Keys)
	if err != nil {
		return nil, err
	}
	return signedBy(in, keys)
}

// signedBy opens an artifact. If there are keys, one of them must have signed it.
func signedBy(in io.Reader, keys []device.Trusted) (*mender.Reader, error) {
	var o mender.ReadOptions
	for _, k := range keys {
		o.PublicKeys = append(o.PublicKeys, k.Public)
	}
	return mender.NewReader(in, o)
}
