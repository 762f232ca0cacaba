package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// statement reads and verifies the statement of a release; nil if there is none.
func (p *program) statement(r *store.Release) *view.Signed {
	if r.Statement == nil {
		return nil
	}
	s, err := statement.Parse(r.Statement)
	if err != nil {
		return &view.Signed{Problem: err.Error(), Damaged: true}
	}
	out := &view.Signed{Text: &s.Statement}
	if !isAbout(&s.Statement, r) {
		out.Problem, out.Damaged = "it is about a release other than the stored one", true
		return out
	}
	keys, err := p.config.Signatures.Read(p.config.Signatures.Keys)
	err = cmp.Or(p.config.Signatures.Err, err)
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("no public key is configured")
	}
	var key *device.Trusted
	if err == nil {
		key, err = device.StatementKey(keys, r.Application, s)
	}
	if err == nil {
		out.Key = key.File
		out.Fingerprint, err = mender.Fingerprint(key.Public)
	}
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.Verified = true
	return out
}

// isAbout reports whether the store has the release that a statement is about.
func isAbout(s *statement.Statement, r *store.Release) bool {
	type component struct {
		typ, url string
		digest   digest.Digest
	}
	stated, have := map[component]bool{}, map[component]bool{}
	for _, c := range s.Components {
		stated[component{c.Type, c.URL, c.Digest}] = true
	}
	for _, c := range r.Components {
		have[component{c.Type, c.URL, c.Digest}] = true
		if !stated[component{c.Type, c.URL, c.Digest}] {
			return false
		}
	}
	return len(stated) == len(have) && s.Application == r.Application && s.Version == r.Version &&
		s.Orchestrator == r.Orchestrator && s.Platform == r.Platform
}

// statementText is a statement for a person.
func statementText(s *view.Signed) string {
	if s.Verified {
		return "signed by " + s.Key + " " + s.Fingerprint
	}
	return "not verified: " + device.OneLine(s.Problem)
}

// statements says who signed the statements of an application's current and kept
// releases. It returns a problem for each that is damaged.
func (p *program) statements(name string) (problems []deploy.Problem, err error) {
	a, err := p.config.OpenStore().App(name)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Concat([]string{a.Current}, a.Kept) {
		if id == "" {
			continue
		}
		r, err := a.Release(id)
		if err != nil {
			return nil, err
		}
		s := p.statement(r)
		switch {
		case s == nil:
		case s.Damaged:
			problems = append(problems, deploy.Problem{App: name, Release: id, Component: "statement", Text: "statement: " + s.Problem})
		case !p.json:
			fmt.Fprintf(p.stdout, "%s %s: statement %s\n", name, id, statementText(s))
		}
	}
	return problems, nil
}
