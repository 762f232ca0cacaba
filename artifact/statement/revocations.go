package statement

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
)

// RevocationsType is the type of a list of revocations in its envelope.
const RevocationsType = "application/vnd.mender-app.revocations.v1+json"

// Revocations are keys and statements that no longer count. A list is whole: the one with
// the greatest version says all that is revoked.
type Revocations struct {
	Version    int64           `json:"version"`              // from 1 on
	Keys       []digest.Digest `json:"keys,omitempty"`       // fingerprints, as mender.Fingerprint writes them
	Statements []digest.Digest `json:"statements,omitempty"` // as Signed.Digest returns them
}

// SignedRevocations is a list with its signatures, which ParseRevocations did not verify.
type SignedRevocations struct {
	Revocations
	envelope
}

// check refuses a list that cannot be meant.
func (r *Revocations) check() error {
	if r.Version < 1 {
		return fmt.Errorf("version %d: the first one is 1", r.Version)
	}
	for _, list := range [][]digest.Digest{r.Keys, r.Statements} {
		for _, d := range list {
			if !d.Valid() {
				return fmt.Errorf("malformed digest %q", clip.Text(string(d)))
			}
		}
	}
	return nil
}

// SignRevocations returns the list in an envelope for the metadata, signed with the key of
// the options.
func SignRevocations(r *Revocations, o mender.Options) (json.RawMessage, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStatement, err)
	}
	payload, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("revocations: %w", err)
	}
	e := envelope{PayloadType: RevocationsType, Payload: payload}
	if signed, err := e.add(o); err != nil {
		return nil, err
	} else if !signed {
		return nil, errors.New("revocations: there is no key to sign with")
	}
	return e.encode(artifact.MaxRevocations)
}

// AddSignature returns the envelope with one more signature, with the key of the options.
func (r *SignedRevocations) AddSignature(o mender.Options) (json.RawMessage, error) {
	e := r.envelope
	e.Sigs = slices.Clone(e.Sigs)
	if _, err := e.add(o); err != nil {
		return nil, err
	}
	return e.encode(artifact.MaxRevocations)
}

// ParseRevocations reads an envelope that SignRevocations made. The error is an
// ErrStatement.
func ParseRevocations(b []byte) (*SignedRevocations, error) {
	var r SignedRevocations
	if err := r.open(b, artifact.MaxRevocations, RevocationsType); err != nil {
		return nil, fmt.Errorf("revocations: %w", err)
	}
	err := known(r.Payload, &r.Revocations, new(Revocations))
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, fmt.Errorf("revocations: %w: %s", ErrStatement, clip.Text(err.Error()))
	}
	return &r, nil
}
