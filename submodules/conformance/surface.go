package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/mender-app/mender-app/submodules"
)

// The fewest arguments of each verb that needs some.
var arguments = sync.OnceValue(func() map[string][]string {
	return map[string][]string{
		submodules.VerbExportManifest: {"APP", "/dir"},
		submodules.VerbSave:           {"APP", "url", "/path"},
		submodules.VerbLoad:           {"APP", "url", "/path"},
		submodules.VerbList:           {"APP"},
		submodules.VerbLsComponents:   {"APP"},
		submodules.VerbDelete:         {"url", "APP"},
		submodules.VerbRollout:        {"APP", "/dir"},
		submodules.VerbRollback:       {"APP", "/dir"},
		submodules.VerbPurge:          {"APP"},
		submodules.VerbStop:           {"APP", "/dir"},
		submodules.VerbStart:          {"APP", "/dir"},
		submodules.VerbAlive:          {"APP"},
		submodules.VerbHealthy:        {"APP"},
		submodules.VerbVerify:         {"APP"},
		submodules.VerbSync:           {"APP"},
		submodules.VerbRepair:         {"APP", "/dir"},
		submodules.VerbStorage:        {"APP"},
		submodules.VerbStatus:         {"APP"},
		submodules.VerbLogs:           {"APP"},
		submodules.VerbCheck:          {"APP", "/dir"},
		submodules.VerbRender:         {"APP", "/dir"},
		submodules.VerbVolumes:        {"APP", "/dir"},
		submodules.VerbRun:            {"APP", "/dir", "service", "word"},
	}
})

// asks holds the verbs that change nothing.
var asks = []string{submodules.VerbList, submodules.VerbLsComponents, submodules.VerbAlive, submodules.VerbHealthy, submodules.VerbVerify, submodules.VerbStorage, submodules.VerbStatus, submodules.VerbLogs, submodules.VerbCheck, submodules.VerbRender, submodules.VerbVolumes}

// wrongNames are invalid names of applications. Verbs that change something are
// called only with those that do no harm if they are accepted.
func wrongNames(verb string) []string {
	names := []string{"-x", "a b", "a\nb", "no-such/application", strings.Repeat("a", 129)}
	if slices.Contains(asks, verb) {
		names = append(names, "", ".", "..", "../x")
	}
	return names
}

// surface checks arguments, replies and exit codes without an installed application.
// It returns why the remaining checks cannot be made.
func (s *suite) surface() error {
	s.check("(none)", "a call without a verb is refused", sectionWrong, s.refused())
	s.check("(unknown)", "an unknown verb is refused", sectionWrong, s.refused("NO_SUCH_VERB", s.app))
	s.check("(unknown)", "a verb in small letters is refused", sectionWrong, s.refused("list", s.app))
	for _, verb := range slices.Sorted(maps.Keys(arguments())) {
		args := arguments()[verb]
		if s.old() && !slices.Contains(asks, verb) {
			s.check(verb, "wrong arguments are refused", sectionWrong, notClaimed("it speaks 1.0, and could do harm"))
			continue
		}
		if verb != submodules.VerbPurge && verb != submodules.VerbDelete { // they could do harm
			s.check(verb, "too few arguments are refused", sectionWrong, s.refused(append([]string{verb}, args[1:]...)...))
		}
		more := append([]string{verb}, args...)
		for range 3 { // no verb has more than two that may be left out
			more = append(more, "more")
		}
		if verb == submodules.VerbStatus && s.has(submodules.FeatureStatuses) || verb == submodules.VerbRun && s.has(submodules.FeatureRun) {
			for range submodules.MaxApps {
				more = append(more, "more")
			}
		}
		s.check(verb, "too many arguments are refused", sectionWrong, s.refused(s.filled(more, s.app)...))
		var err error
		for _, name := range wrongNames(verb) {
			if err = s.refused(s.filled(append([]string{verb}, args...), name)...); err != nil {
				var v *verdict
				if !errors.As(err, &v) {
					err = fmt.Errorf("%q: %w", name, err)
				}
				break
			}
		}
		s.check(verb, "what is no name of an application is refused", sectionCall, err)
	}
	s.check(submodules.VerbReqs, "arguments are refused", sectionWrong, s.refused(submodules.VerbReqs, "more"))
	err := s.reqs()
	s.check(submodules.VerbReqs, "names commands", sectionCall, err)
	var v *verdict
	if errors.As(err, &v) {
		return v
	}
	return nil
}

func (s *suite) filled(args []string, app string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if a == "APP" {
			args[i] = app
		}
	}
	return args
}

// refused makes a wrong call.
func (s *suite) refused(args ...string) error {
	r := s.call(call{args: args, limit: min(wrongLimit, s.c.limit)})
	switch {
	case r.hung:
		return errors.New(r.String())
	case r.code == submodules.CodeUsage && r.stdout == "":
		return nil
	case r.code == submodules.CodeUsage:
		return s.since11(fmt.Errorf("it prints %s to standard output", excerpt(r.stdout)))
	}
	return s.since11(fmt.Errorf("%s, not %d", r, submodules.CodeUsage))
}

var reqsLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[^:\s]+:(error|warning)$`)
})

func (s *suite) reqs() error {
	r := s.run(submodules.VerbReqs)
	if r.code != submodules.CodeDone && r.code != submodules.CodeRequirement {
		return errors.New(r.String())
	}
	for line := range strings.Lines(r.stdout) {
		if line = strings.TrimSpace(line); line != "" && !reqsLine().MatchString(line) {
			return fmt.Errorf("%s is not a command with :error or :warning", excerpt(line))
		}
	}
	if r.code == submodules.CodeRequirement {
		return skipped("what it needs is not there, it says: %s", r)
	}
	return nil
}

// nothingInstalled checks the answers about an application that is not there.
func (s *suite) nothingInstalled() {
	const there = "an application that is not there: "
	_, err := s.list()
	s.check(submodules.VerbList, there+"a list without components", sectionReplies, err)
	a, b := s.run(submodules.VerbList, s.app), s.run(submodules.VerbLsComponents, s.app)
	if err = nil; a.stdout != b.stdout || a.code != b.code {
		err = s.since11(fmt.Errorf("%s prints %s, and %s prints %s (%s)", submodules.VerbList, excerpt(a.stdout), submodules.VerbLsComponents, excerpt(b.stdout), b))
	}
	s.check(submodules.VerbLsComponents, "prints what LIST prints", sectionCall, err)
	for _, verb := range []string{submodules.VerbAlive, submodules.VerbHealthy} {
		s.check(verb, there+"false", sectionCall, s.since11(s.answers(verb, false)))
	}
	r := s.run(submodules.VerbSave, s.app, "no-such-component", filepath.Join(s.c.temp, "saved"))
	if err = nil; r.code != submodules.CodeNotFound {
		err = fmt.Errorf("%s, not %d", r, submodules.CodeNotFound)
	}
	s.check(submodules.VerbSave, "a component that is not there: exit code 4", sectionCodes, err)
	s.check(submodules.VerbDelete, "a component that is not there is no error", rely(5), s.twice(call{args: []string{submodules.VerbDelete, "no-such-component", s.app}}))
	s.check(submodules.VerbPurge, "an application that is not there is no error", rely(1), s.twice(call{args: []string{submodules.VerbPurge, s.app}}))
	s.unknownWords()
	s.features()
}

// unknownWords checks that words of later protocol versions do no harm.
func (s *suite) unknownWords() {
	plain := s.run(submodules.VerbList, s.app)
	r := s.call(call{
		args: []string{submodules.VerbList, s.app}, options: []string{"no-such-word", "another"},
		env: []string{"MENDER_APP_NO_SUCH_VARIABLE=1", "NO_SUCH=\n;'"},
	})
	var err error
	if r.code != plain.code || r.stdout != plain.stdout {
		err = fmt.Errorf("with them LIST prints %s (%s), without %s", excerpt(r.stdout), r, excerpt(plain.stdout))
	}
	s.check(submodules.VerbList, "unknown options and variables are ignored", sectionEnvironment, err)
	if !s.has(submodules.FeatureComponents) {
		s.check(submodules.VerbDelete, "unknown members of a component are ignored", sectionEnvironment, notClaimed("it does not have the feature %s", submodules.FeatureComponents))
		return
	}
	file := filepath.Join(s.c.temp, "unknown.json")
	if err := os.WriteFile(file, []byte(`[{"type":"binary","url":"no-such-component","digest":"sha256:`+strings.Repeat("0", 64)+`","no-such-member":{"a":[1]}}]`), 0o600); err != nil {
		panic(&stopped{err})
	}
	r = s.call(call{args: []string{submodules.VerbDelete, "no-such-component", s.app}, env: []string{submodules.EnvComponents + "=" + file}})
	s.check(submodules.VerbDelete, "unknown members of a component are ignored", sectionEnvironment, done(r))
}

// features checks the verbs of optional features while nothing is installed.
func (s *suite) features() {
	s.feature(submodules.FeatureVerify, submodules.VerbVerify, "names what is missing", rely(8), func() error {
		c := submodules.Component{Type: "image", URL: "no-such-component", Digest: "sha256:" + "00000000000000000000000000000000" + "00000000000000000000000000000000"}
		r := s.call(call{args: []string{submodules.VerbVerify, s.app}, components: []submodules.Component{c}})
		if r.code != submodules.CodeFailed || !strings.HasPrefix(r.stdout, c.URL+": ") {
			return fmt.Errorf("%s, and it prints %s; it should print %q and a reason, and end with %d", r, excerpt(r.stdout), c.URL+": ", submodules.CodeFailed)
		}
		return nil
	})
	s.feature(submodules.FeatureSync, submodules.VerbSync, "succeeds, twice", rely(3), func() error { return s.twice(call{args: []string{submodules.VerbSync, s.app}}) })
	s.feature(submodules.FeatureStorage, submodules.VerbStorage, "names directories", sectionCall, func() error {
		r := s.run(submodules.VerbStorage, s.app)
		for line := range strings.Lines(r.stdout) {
			if dir := strings.TrimSpace(line); !filepath.IsAbs(dir) || !isDir(dir) {
				return fmt.Errorf("%q is not a directory's absolute path", dir)
			}
		}
		return done(r)
	})
	s.feature(submodules.FeatureStatus, submodules.VerbStatus, "an application that is not there: not alive, no services", sectionReplies, func() error {
		st, err := s.status()
		if err == nil && (st.Alive || st.Healthy || len(st.Services) > 0) {
			err = fmt.Errorf("it says that something of it is there: %+v", st)
		}
		return err
	})
	s.feature(submodules.FeatureLogs, submodules.VerbLogs, "an application that is not there: exit code 4", sectionCodes, func() error {
		if r := s.run(submodules.VerbLogs, s.app); r.code != submodules.CodeNotFound || r.stdout != "" {
			return fmt.Errorf("%s, and it prints %s", r, excerpt(r.stdout))
		}
		return nil
	})
	s.feature(submodules.FeatureEngine, submodules.VerbEngine, "names the engine and its version", sectionReplies, func() error {
		r := s.run(submodules.VerbEngine)
		var e submodules.Engine
		if r.code == 0 && (json.Unmarshal([]byte(r.stdout), &e) != nil || e.Name == "" || !regexp.MustCompile(`^v?[0-9]+\.[0-9]+`).MatchString(e.Version)) {
			return fmt.Errorf("it prints %s", excerpt(r.stdout))
		}
		return done(r)
	})
}

// feature checks what the feature asks for.
func (s *suite) feature(feature, verb, what, section string, f func() error) bool {
	if !s.has(feature) {
		return s.check(verb, what, section, notClaimed("it does not have the feature %s", feature))
	}
	return s.check(verb, what, section, f())
}

// done returns an error if the call failed.
func done(r reply) error {
	if r.code != submodules.CodeDone {
		return errors.New(r.String())
	}
	return nil
}

// twice makes a call two times; both must succeed.
func (s *suite) twice(in call) error {
	if err := done(s.call(in)); err != nil {
		return err
	}
	if err := done(s.call(in)); err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	return nil
}

// answers calls ALIVE or HEALTHY and checks the answer.
func (s *suite) answers(verb string, want bool) error {
	r := s.run(verb, s.app)
	code, word := submodules.CodeDone, "true"
	if !want {
		code, word = submodules.CodeFailed, "false"
	}
	said := strings.TrimSpace(r.stdout)
	if s.old() && said == "" {
		said = word // a 1.0 sub-module may answer with its exit code alone
	}
	if r.code != code || said != word {
		return fmt.Errorf("it prints %s (%s); %q and %d are wanted", excerpt(r.stdout), r, word, code)
	}
	return nil
}

// healths are what STATUS may call a service.
var healths = []string{submodules.Healthy, submodules.Starting, submodules.Unhealthy, submodules.Down, submodules.Finished, submodules.Off}

// status calls STATUS and checks that the answer is what ALIVE and HEALTHY answer,
// and that its entries are sorted and whole.
func (s *suite) status() (st submodules.Status, err error) {
	r := s.run(submodules.VerbStatus, s.app)
	if err := done(r); err != nil {
		return st, err
	}
	if err := json.Unmarshal([]byte(r.stdout), &st); err != nil || st.Services == nil {
		return st, fmt.Errorf("it prints %s, which is no status", excerpt(r.stdout))
	}
	err = errors.Join(s.answers(submodules.VerbAlive, st.Alive), s.answers(submodules.VerbHealthy, st.Healthy))
	before := ""
	for _, v := range st.Services {
		key := v.Name + "\x00" + v.Instance
		control := func(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }
		switch {
		case v.Name == "" || !slices.Contains(healths, v.Health) || v.Restarts < 0 || control(v.Image) || control(v.Failure) || control(v.Said):
			err = errors.Join(err, fmt.Errorf("the service %+v is not as it should be", v))
		case key < before:
			err = errors.Join(err, fmt.Errorf("service %s is not in order", v.Name))
		case st.Healthy && v.Health != submodules.Healthy && v.Health != submodules.Finished && v.Health != submodules.Off:
			err = errors.Join(err, fmt.Errorf("the application is healthy, and service %s is %s", v.Name, v.Health))
		}
		before = key
	}
	return st, err
}

// logs calls LOGS with a number of lines and checks the reply.
func (s *suite) logs(lines int) error {
	r := s.call(call{args: []string{submodules.VerbLogs, s.app}, env: []string{fmt.Sprintf("%s=%d", submodules.EnvLogLines, lines)}})
	if err := done(r); err != nil {
		return err
	}
	count := map[string]int{}
	var before time.Time
	for text := range strings.Lines(r.stdout) {
		var l submodules.LogLine
		if json.Unmarshal([]byte(text), &l) != nil || l.Service == "" || l.Stream != "stdout" && l.Stream != "stderr" {
			return fmt.Errorf("it prints %s, which is no log line", excerpt(text))
		}
		if count[l.Instance]++; count[l.Instance] > lines {
			return fmt.Errorf("it prints more than %d lines of %s", lines, l.Instance)
		}
		if l.At.Before(before) {
			return fmt.Errorf("a line of %v comes after one of %v", l.At, before)
		}
		before = l.At
	}
	if r := s.run(submodules.VerbLogs, s.app, "no-such-service"); r.code != submodules.CodeNotFound || r.stdout != "" {
		return fmt.Errorf("of a service that is not there: %s, and it prints %s", r, excerpt(r.stdout))
	}
	return nil
}

// list calls LIST and returns the components.
func (s *suite) list() ([]submodules.Component, error) {
	r := s.run(submodules.VerbList, s.app)
	if err := done(r); err != nil {
		return nil, err
	}
	var list []submodules.Component
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
		return nil, fmt.Errorf("it prints %s, which is no JSON list of components: %w", excerpt(r.stdout), err)
	}
	return list, nil
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
