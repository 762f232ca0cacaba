package artifact

import (
	"bytes"
	"encoding/json"

	"github.com/mender-app/mender-app/artifact/strictjson"
)

// metadataJSON is the form of the metadata in an artifact. Every value is a
// string, a number or a list of strings, because Mender's programs accept nothing
// else: the client 4.0 refuses an artifact with other values in its metadata
// (src/artifact/v3/header/meta_data.cpp, tag 4.0.0), and mender-artifact up to
// 3.11 does not modify or sign an artifact with a list of objects. Structured
// values are therefore JSON in a string.
//
// The fields here hide those of the same name in Metadata.
type metadataJSON struct {
	*metadataFields
	Env        any                        `json:"env,omitempty"`
	Reboot     flag                       `json:"reboot,omitempty"`
	Components *inString[[]Component]     `json:"components,omitempty"`
	Sizes      *inString[*Sizes]          `json:"sizes,omitempty"`
	Policy     *inString[json.RawMessage] `json:"policy,omitempty"`
	Statement  *inString[json.RawMessage] `json:"statement,omitempty"`
	Revoked    *inString[json.RawMessage] `json:"revocations,omitempty"`
	Made       *inString[*Made]           `json:"made,omitempty"`
}

// metadataFields is Metadata without its methods.
type metadataFields Metadata

// MarshalJSON writes m as metadataJSON says. The environment of an artifact for
// the shell reference is an object, the only form that the reference reads.
func (m Metadata) MarshalJSON() ([]byte, error) {
	f := metadataFields(m)
	w := metadataJSON{metadataFields: &f, Reboot: flag(m.Reboot)}
	if len(m.Components) > 0 {
		w.Components = &inString[[]Component]{m.Components}
	}
	if m.Sizes != nil {
		w.Sizes = &inString[*Sizes]{m.Sizes}
	}
	if m.Policy != nil {
		w.Policy = &inString[json.RawMessage]{m.Policy}
	}
	if m.Statement != nil {
		w.Statement = &inString[json.RawMessage]{m.Statement}
	}
	if m.Revocations != nil {
		w.Revoked = &inString[json.RawMessage]{m.Revocations}
	}
	if m.Made != nil {
		w.Made = &inString[*Made]{m.Made}
	}
	switch {
	case len(m.Env) == 0:
	case m.Version == VersionReference:
		w.Env = m.Env
	default:
		w.Env = inString[map[string]string]{m.Env}
	}
	return marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes. It also reads values outside a string,
// which the shell reference and earlier versions of app-gen write.
func (m *Metadata) UnmarshalJSON(b []byte) error {
	var env inString[map[string]string]
	var components inString[[]Component]
	var sizes inString[*Sizes]
	var policy, statement, revoked inString[json.RawMessage]
	var made inString[*Made]
	w := metadataJSON{
		metadataFields: (*metadataFields)(m), Env: &env, Components: &components, Sizes: &sizes, Policy: &policy, Statement: &statement, Revoked: &revoked, Made: &made,
	}
	if err := strictjson.Unmarshal(b, &w); err != nil {
		return err
	}
	m.Env, m.Reboot, m.Components, m.Sizes = env.value, bool(w.Reboot), components.value, sizes.value
	m.Policy, m.Statement, m.Revocations, m.Made = policy.value, statement.value, revoked.value, made.value
	return nil
}

// inString is a value that is written as JSON in a string. It also reads the
// value itself.
type inString[T any] struct{ value T }

func (s inString[T]) MarshalJSON() ([]byte, error) {
	b, err := marshal(s.value)
	if err != nil {
		return nil, err
	}
	return marshal(string(b))
}

func (s *inString[T]) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		b = []byte(text)
	}
	return strictjson.Unmarshal(b, &s.value)
}

// flag is a bool: true is written as 1, and false is left out. It also reads true
// and false.
type flag bool

func (f flag) MarshalJSON() ([]byte, error) {
	if f {
		return []byte("1"), nil
	}
	return []byte("0"), nil
}

func (f *flag) UnmarshalJSON(b []byte) error {
	var is bool
	switch string(b) {
	case "0", "1":
		is = b[0] == '1'
	default:
		if err := json.Unmarshal(b, &is); err != nil {
			return err
		}
	}
	*f = flag(is)
	return nil
}

// marshal is json.Marshal without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
