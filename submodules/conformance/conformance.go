// Package conformance tests any sub-module, as an executable, against PROTOCOL.md.
// Authors of sub-modules in other languages can run the same tests as the sub-
// modules that come with mender-app: the program is cmd/app-conformance.
//
// Without a Fixture, Check makes only the tests that need nothing but the
// executable. With one it also plays the life of an application and kills running
// calls.
package conformance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/submodules"
)

// Options say what Check tests, and how.
type Options struct {
	Path    string   // the executable
	Env     []string // more of the environment of each call, "NAME=value"
	Fixture *Fixture // nil: only what needs none
	// Limit bounds each call; 0 means three minutes. Wrong calls get at most 20
	// seconds.
	Limit time.Duration
	// Kills is how often each verb that changes something is killed; 0 means three
	// times.
	Kills int
}

const (
	defaultLimit = 3 * time.Minute
	defaultKills = 3
	wrongLimit   = 20 * time.Second
)

// rule is a rule that every call must follow.
type rule struct{ check, section string }

var (
	ruleTime      = rule{"ends in time", sectionCaller}
	ruleProcesses = rule{"leaves no process", sectionCaller}
	ruleBounds    = rule{"bounds what it prints", sectionReplies}
	ruleError     = rule{"says why it failed", sectionReplies}

	rules = []rule{ruleTime, ruleProcesses, ruleBounds, ruleError}
)

// The sections of PROTOCOL.md that state the rules.
const (
	sectionCall        = "A call"
	sectionWrong       = "Wrong calls"
	sectionEnvironment = "Environment"
	sectionReplies     = "Replies"
	sectionCodes       = "Exit codes"
	sectionCaller      = "What a sub-module may rely on"
	sectionRely        = "What a caller may rely on, %d"
)

func rely(number int) string { return fmt.Sprintf(sectionRely, number) }

// suite is one run of Check.
type suite struct {
	ctx    context.Context
	c      *caller
	app    string
	store  string // where the releases' manifests are
	info   submodules.Info
	report *Report
	kills  int
	faults map[string]map[rule]string // of each verb that was called, the first of each rule
	order  []string                   // the verbs, as they were called first
}

// Check tests the sub-module and returns its findings. At the end it purges the
// fixture's application, deletes what it loaded, and kills the processes that calls
// left behind. The error says why there is no report: the executable cannot be run,
// or ctx has ended.
func Check(ctx context.Context, o Options) (*Report, error) {
	s, end, err := newSuite(ctx, o)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := s.describe(); err != nil {
		return nil, err
	}
	if err := s.all(o.Fixture); err != nil {
		return nil, err
	}
	s.conduct()
	return s.report, nil
}

// newSuite prepares a run of Check and makes no call. end kills the processes and
// removes the files that the run left.
func newSuite(ctx context.Context, o Options) (s *suite, end func(), err error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, nil, err
	}
	m, err := submodules.Find(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return nil, nil, err
	}
	temp, err := scratch.Dir("", scratch.Prefix)
	if err != nil {
		return nil, nil, err
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	name := fmt.Sprintf("conformance-%x", id)
	s = &suite{
		ctx: ctx, app: name, store: filepath.Join(temp, "store"), kills: o.Kills,
		c: &caller{
			path: path, env: o.Env, limit: o.Limit, temp: temp, marker: "MENDER_APP_CONFORMANCE=" + name,
			begun: now(), allow: map[int]bool{}, hung: map[string]bool{},
		},
		report: &Report{Path: path, Name: m.Name, Features: []string{}},
		faults: map[string]map[rule]string{},
	}
	if o.Limit <= 0 {
		s.c.limit = defaultLimit
	}
	if o.Kills <= 0 {
		s.kills = defaultKills
	}
	return s, func() { s.c.end(); _ = scratch.Remove(temp) }, nil
}

// all makes the checks. A call that cannot be made panics with stopped, which all
// returns as an error.
func (s *suite) all(f *Fixture) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stop, ok := v.(*stopped)
			if !ok {
				panic(v)
			}
			err = stop.err
		}
	}()
	if err := s.surface(); err != nil {
		s.add(Finding{submodules.VerbList, "the answers about applications", sectionCall, Skipped, err.Error()})
		return nil
	}
	s.nothingInstalled()
	if f == nil {
		s.add(Finding{submodules.VerbRollout, "the life of an application", sectionCall, Skipped, "it needs a fixture (--fixture)"})
		return nil
	}
	if f.App != "" {
		s.app = f.App
	}
	s.life(f)
	return nil
}

// stopped is the panic value that ends a run early, because ctx has ended or a file
// cannot be written.
type stopped struct{ err error }

// call makes a call and notes the rules that it broke.
func (s *suite) call(in call) reply {
	r, faults, err := s.c.do(s.ctx, in)
	if err != nil {
		panic(&stopped{err})
	}
	verb := in.verb()
	if s.faults[verb] == nil {
		s.faults[verb] = map[rule]string{}
		s.order = append(s.order, verb)
	}
	for which, what := range faults {
		if s.faults[verb][which] == "" {
			s.faults[verb][which] = what
		}
	}
	return r
}

// run makes a call with a verb and its arguments.
func (s *suite) run(args ...string) reply { return s.call(call{args: args}) }

func (s *suite) add(f Finding) { s.report.Findings = append(s.report.Findings, f) }

// check adds a finding. The check passed if err is nil, has the verdict's result if
// err is one, and failed otherwise. It reports whether the checks that follow can be
// made.
func (s *suite) check(verb, what, section string, err error) bool {
	f := Finding{Verb: verb, Check: what, Section: section, Result: Pass}
	var v *verdict
	switch {
	case errors.As(err, &v):
		f.Result, f.Reason = v.result, v.reason
	case err != nil:
		f.Result, f.Reason = Fail, err.Error()
	}
	s.add(f)
	return f.Result != Fail
}

// old reports whether the sub-module speaks protocol 1.0.
func (s *suite) old() bool { return s.info.Protocol == "1.0" }

// since11 turns a failure of what only 1.1 requires into "not claimed" if the sub-
// module speaks 1.0.
func (s *suite) since11(err error) error {
	var v *verdict
	if err == nil || errors.As(err, &v) || !s.old() {
		return err
	}
	return notClaimed("protocol 1.0 does not ask for it: %s", err)
}

func (s *suite) has(feature string) bool { return s.info.Has(feature) }

// describe asks the sub-module for its protocol.
func (s *suite) describe() error {
	r, faults, err := s.c.do(s.ctx, call{args: []string{submodules.VerbProtocol}, limit: min(wrongLimit, s.c.limit)})
	if err != nil {
		return err
	}
	s.faults[submodules.VerbProtocol], s.order = faults, []string{submodules.VerbProtocol}
	what := "says what it speaks"
	s.info = submodules.Info{Protocol: "1.0", Name: s.report.Name}
	var info submodules.Info
	switch {
	case r.hung:
		s.check(submodules.VerbProtocol, what, sectionReplies, errors.New(r.String()))
	case r.code != 0 || json.Unmarshal([]byte(r.stdout), &info) != nil || !strings.HasPrefix(info.Protocol, "1."):
		delete(faults, ruleError) // a verb that it does not know
		s.check(submodules.VerbProtocol, what, sectionReplies, notClaimed("it speaks 1.0: %s, and %s on standard output", r, excerpt(r.stdout)))
	default:
		if s.info = info; info.Name == "" || info.Version == "" {
			err = fmt.Errorf("name or version is missing in %s", excerpt(r.stdout))
		} else if again := s.run(submodules.VerbProtocol); again.stdout != r.stdout {
			err = fmt.Errorf("it says %s, and then %s", excerpt(r.stdout), excerpt(again.stdout))
		}
		s.check(submodules.VerbProtocol, what, sectionReplies, err)
		s.report.Name, s.report.Version = info.Name, info.Version
		s.report.Features = append(s.report.Features, info.Features...)
	}
	s.report.Protocol = s.info.Protocol
	return nil
}

// conduct adds a finding for each verb and each rule.
func (s *suite) conduct() {
	slices.Sort(s.order)
	for _, verb := range s.order {
		for _, r := range rules {
			var err error
			if what := s.faults[verb][r]; what != "" {
				err = errors.New(what)
			}
			if r == ruleError {
				err = s.since11(err)
			}
			s.check(verb, r.check, r.section, err)
		}
	}
}
