package statement

import (
	"crypto"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// PayloadType is the type of a statement in its envelope. A new form of the
// statement needs a new type.
const PayloadType = "application/vnd.mender-app.statement.v1+json"

// maxSignatures is how many signatures an envelope may have.
const maxSignatures = 8

// Signed is a statement with its signatures, which Parse did not verify.
type Signed struct {
	Statement
	envelope envelope
}

// envelope is a DSSE envelope, version 1.0.2:
// https://github.com/secure-systems-lab/dsse/blob/v1.0.2/envelope.md
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"` // in base64
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	// There is no keyid: it is a hint that nothing protects, and app-gen does
	// not know it for every key.
	Sig []byte `json:"sig"` // in base64
}

// message is what a signature of the envelope covers: DSSE's pre-authentication
// encoding.
func (e *envelope) message() []byte {
	b := []byte("DSSEv1 " + strconv.Itoa(len(e.PayloadType)) + " " + e.PayloadType + " " + strconv.Itoa(len(e.Payload)) + " ")
	return append(b, e.Payload...)
}

// Sign returns the statement in an envelope for the metadata, signed with the key
// of the options; nil if the options have no key.
func Sign(s *Statement, o mender.Options) (json.RawMessage, error) {
	payload, err := s.Encode()
	if err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	e := envelope{PayloadType: PayloadType, Payload: payload}
	sig, err := o.Signature(e.message())
	if err != nil || sig == nil {
		return nil, err
	}
	e.Signatures = []signature{{Sig: sig}}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	if len(b) > artifact.MaxStatement {
		return nil, fmt.Errorf("%w: %d bytes, at most %d may be", ErrStatement, len(b), artifact.MaxStatement)
	}
	return b, nil
}

// Parse reads an envelope that Sign made. The error is an ErrStatement.
func Parse(b []byte) (*Signed, error) {
	if len(b) > artifact.MaxStatement {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrStatement, artifact.MaxStatement)
	}
	var s Signed
	if err := strictjson.Unmarshal(b, &s.envelope); err != nil {
		return nil, fmt.Errorf("%w: its envelope: %s", ErrStatement, clip.Text(err.Error()))
	}
	switch e := &s.envelope; {
	case e.PayloadType != PayloadType:
		return nil, fmt.Errorf("%w: it is of the type %q, which this version of mender-app does not know", ErrStatement, clip.Text(e.PayloadType))
	case len(e.Signatures) == 0:
		return nil, fmt.Errorf("%w: it is not signed", ErrStatement)
	case len(e.Signatures) > maxSignatures:
		return nil, fmt.Errorf("%w: %d signatures", ErrStatement, len(e.Signatures))
	}
	st, err := decode(s.envelope.Payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrStatement, clip.Text(err.Error()))
	}
	s.Statement = *st
	return &s, nil
}

// SignedBy reports whether a key made one of the signatures.
func (s *Signed) SignedBy(key crypto.PublicKey) bool {
	message := s.envelope.message()
	for _, sig := range s.envelope.Signatures {
		if mender.VerifySignature(key, message, sig.Sig) == nil {
			return true
		}
	}
	return false
}
