package statement

import (
	"crypto"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// PayloadType is the type of a statement in its envelope. A new form of the
// statement needs a new type.
const PayloadType = "application/vnd.mender-app.statement.v1+json"

// MaxSignatures is the maximum number of signatures in an envelope.
const MaxSignatures = 8

// Signed is a statement with its signatures, which Parse did not verify.
type Signed struct {
	Statement
	envelope
}

// envelope is a DSSE envelope, version 1.0.2:
// https://github.com/secure-systems-lab/dsse/blob/v1.0.2/envelope.md
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"` // in base64
	Sigs        []signature `json:"signatures"`
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

// Digest identifies what was signed, whoever signed it: revocations name statements by it.
func (e *envelope) Digest() digest.Digest { return digest.Of(e.Payload) }

// Signatures returns how many signatures there are.
func (e *envelope) Signatures() int { return len(e.Sigs) }

// SignedBy reports whether a key made one of the signatures.
func (e *envelope) SignedBy(key crypto.PublicKey) bool {
	message := e.message()
	for _, sig := range e.Sigs {
		if mender.VerifySignature(key, message, sig.Sig) == nil {
			return true
		}
	}
	return false
}

// add adds a signature with the key of the options; it reports whether they have one.
func (e *envelope) add(o mender.Options) (bool, error) {
	sig, err := o.Signature(e.message())
	if err != nil || sig == nil {
		return false, err
	}
	if len(e.Sigs) == MaxSignatures {
		return false, fmt.Errorf("%w: it has %d signatures, which is the maximum", ErrStatement, MaxSignatures)
	}
	e.Sigs = append(e.Sigs, signature{Sig: sig})
	return true, nil
}

// encode is the envelope as JSON, of at most so many bytes.
func (e *envelope) encode(most int) (json.RawMessage, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	if len(b) > most {
		return nil, fmt.Errorf("%w: %d bytes, the maximum is %d", ErrStatement, len(b), most)
	}
	return b, nil
}

// open reads an envelope of at most so many bytes with a payload of a type.
func (e *envelope) open(b []byte, most int, payloadType string) error {
	if len(b) > most {
		return fmt.Errorf("%w: larger than %d bytes", ErrStatement, most)
	}
	if err := strictjson.Unmarshal(b, e); err != nil {
		return fmt.Errorf("%w: its envelope: %s", ErrStatement, clip.Text(err.Error()))
	}
	switch {
	case e.PayloadType != payloadType:
		return fmt.Errorf("%w: it is of the type %q, which this version of mender-app does not know", ErrStatement, clip.Text(e.PayloadType))
	case len(e.Sigs) == 0:
		return fmt.Errorf("%w: it is not signed", ErrStatement)
	case len(e.Sigs) > MaxSignatures:
		return fmt.Errorf("%w: %d signatures", ErrStatement, len(e.Sigs))
	}
	return nil
}

// Sign returns the statement in an envelope for the metadata, signed with the key
// of the options; nil if the options have no key.
func Sign(s *Statement, o mender.Options) (json.RawMessage, error) {
	payload, err := s.Encode()
	if err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	e := envelope{PayloadType: PayloadType, Payload: payload}
	if signed, err := e.add(o); err != nil || !signed {
		return nil, err
	}
	return e.encode(artifact.MaxStatement)
}

// AddSignature returns the envelope of a statement with one more signature, with the key of
// the options. What was signed stays the same, to the byte.
func (s *Signed) AddSignature(o mender.Options) (json.RawMessage, error) {
	e := s.envelope
	e.Sigs = slices.Clone(e.Sigs)
	if _, err := e.add(o); err != nil {
		return nil, err
	}
	return e.encode(artifact.MaxStatement)
}

// Parse reads an envelope that Sign made. The error is an ErrStatement.
func Parse(b []byte) (*Signed, error) {
	var s Signed
	if err := s.open(b, artifact.MaxStatement, PayloadType); err != nil {
		return nil, err
	}
	st, err := decode(s.Payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrStatement, clip.Text(err.Error()))
	}
	s.Statement = *st
	return &s, nil
}
