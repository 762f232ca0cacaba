package statement

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// ErrStatement: a statement cannot be read, is not about the artifact it came
// with, or was not signed by a trusted key. The wrapping error is one line.
var ErrStatement = errors.New("bad statement")

// Statement says what a release of an application is.
type Statement struct {
	Application  string            `json:"application"`
	Version      string            `json:"version,omitempty"`
	Orchestrator string            `json:"orchestrator"`
	Platform     string            `json:"platform"`
	Env          map[string]string `json:"env,omitempty"`
	Reboot       bool              `json:"reboot,omitempty"`
	Policy       digest.Digest     `json:"policy,omitempty"` // of the policy's JSON as it is in the metadata
	Components   []Component       `json:"components"`       // sorted by URL, then by digest
	Manifests    digest.Digest     `json:"manifests"`        // as artifact.ReadManifests returns it
	Reach        *Reach            `json:"reach,omitempty"`  // nil: it says nothing of it, as before version 1.0
	// Issued is when it was made, and Expires until when it may be installed; both are zero if
	// it does not expire.
	Issued  time.Time `json:"issued,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// Component is one component of the release.
type Component struct {
	URL      string        `json:"url"`
	Type     string        `json:"type"`
	Platform string        `json:"platform"`
	Digest   digest.Digest `json:"digest"`
}

// Of returns the statement about a release: what its metadata says, and the
// digest of its manifests.
func Of(m *artifact.Metadata, manifests digest.Digest) *Statement {
	s := &Statement{
		Application: m.ApplicationName, Version: m.ApplicationVersion, Orchestrator: m.Orchestrator, Platform: m.Platform,
		Reboot: m.Reboot, Components: []Component{}, Manifests: manifests,
	}
	if len(m.Env) > 0 {
		s.Env = maps.Clone(m.Env)
	}
	if m.Policy != nil {
		s.Policy = digest.Of(m.Policy)
	}
	for _, c := range m.Components {
		s.Components = append(s.Components, Component{URL: c.URL, Type: c.Type, Platform: c.Platform, Digest: c.Digest})
	}
	slices.SortFunc(s.Components, func(a, b Component) int {
		return cmp.Or(cmp.Compare(a.URL, b.URL), cmp.Compare(a.Digest, b.Digest))
	})
	return s
}

// Encode returns the statement as JSON, in one line: the same bytes for the same
// statement.
func (s *Statement) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode reads what Encode wrote. An unknown field is an error, because the device
// could not check the release against it.
func decode(b []byte) (*Statement, error) {
	s := new(Statement)
	if err := known(b, s, new(Statement)); err != nil {
		return nil, err
	}
	if err := names.CheckNew(s.Application); err != nil {
		return nil, fmt.Errorf("application: %w", err)
	}
	if !s.Manifests.Valid() {
		return nil, fmt.Errorf("manifests: malformed digest %q", clip.Text(string(s.Manifests)))
	}
	if s.Issued.IsZero() != s.Expires.IsZero() || s.Expires.Before(s.Issued) {
		return nil, errors.New("it expires before it was issued, or has only one of issued and expires")
	}
	return s, nil
}

// known reads a payload into v as strictly as strictjson does, and refuses a field that
// again, another value of the type, does not have.
func known(b []byte, v, again any) error {
	if err := strictjson.Unmarshal(b, v); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(again)
}

// Check returns an ErrStatement unless the statement is about the release that
// the metadata describes. The manifests are not in the metadata: the code that reads
// them compares their digest.
func (s *Statement) Check(m *artifact.Metadata) error {
	want := Of(m, s.Manifests)
	differs := func(what, says, is string) error {
		return fmt.Errorf("%w: it is about %s %q, and the artifact has %q", ErrStatement, what, clip.Text(says), clip.Text(is))
	}
	switch {
	case s.Application != want.Application:
		return differs("application", s.Application, want.Application)
	case s.Version != want.Version:
		return differs("version", s.Version, want.Version)
	case s.Orchestrator != want.Orchestrator:
		return differs("orchestrator", s.Orchestrator, want.Orchestrator)
	case s.Platform != want.Platform:
		return differs("platform", s.Platform, want.Platform)
	case s.Policy != want.Policy:
		return differs("the policy", s.Policy.String(), want.Policy.String())
	case s.Reboot != want.Reboot:
		return differs("reboot", fmt.Sprint(s.Reboot), fmt.Sprint(want.Reboot))
	case !maps.Equal(s.Env, want.Env):
		return fmt.Errorf("%w: its environment is not the artifact's", ErrStatement)
	}
	for i, c := range want.Components {
		if i >= len(s.Components) || s.Components[i] != c {
			return fmt.Errorf("%w: it lacks the component %s (%s) of the artifact", ErrStatement, clip.Text(c.URL), c.Digest)
		}
	}
	if len(s.Components) > len(want.Components) {
		c := s.Components[len(want.Components)]
		return fmt.Errorf("%w: it has a component %q that the artifact lacks", ErrStatement, clip.Text(c.URL))
	}
	return nil
}
