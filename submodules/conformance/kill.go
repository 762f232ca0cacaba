package conformance

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/submodules"
)

// killed kills running calls. The same call, made again, must succeed.
func (l *life) killed() bool {
	good, better := l.f.Good, l.f.Better
	if len(good.Components) > 0 {
		in := l.loads(good)[0]
		c := in.components[0]
		only := Release{Components: in.components}
		// A LOAD of a present component would do nothing, so it is removed first.
		away := func() error {
			r := l.call(call{args: []string{submodules.VerbDelete, c.URL, l.app}, components: in.components})
			if l.stage == nil {
				return l.load(better)
			}
			return done(r)
		}
		if !l.kill(in, func() error { return l.whole(only) }, away) {
			return false
		}
	}
	releases := []struct {
		id string
		r  Release
	}{{"good", good}, {"better", better}}
	turn := 0
	other := func() (string, Release) { return releases[turn%2].id, releases[turn%2].r }
	// Each ROLLOUT that is killed replaces one of the two releases with the other.
	ready := func() error {
		turn++
		_, r := other()
		return l.load(r)
	}
	for _, r := range []Release{good, better} {
		if l.stage != nil {
			if err := l.load(r); err != nil {
				return l.check(submodules.VerbLoad, "succeeds after DELETE", rely(1), err)
			}
		}
	}
	next := func() call {
		id, r := other()
		return l.rollout(id, r)
	}
	ok := l.killEach(submodules.VerbRollout, next, l.healthy, ready)
	err := errors.Join(l.load(better), done(l.call(l.rollout("better", better))), l.healthy())
	return l.check(submodules.VerbRollout, "succeeds after all of this", rely(1), err) && ok
}

// retries is how many more kills are tried, each one sooner, if no call was still
// running when it was to be killed.
const retries = 5

// kill runs killEach with the same call each time.
func (l *life) kill(in call, good, before func() error) bool {
	return l.killEach(in.verb(), func() call { return in }, good, before)
}

// killEach kills a call at points that are spread over its duration, and sends TERM
// once. After each, it makes the call again, and good returns an error if the result
// is not right. before prepares the next call.
func (l *life) killEach(verb string, next func() call, good, before func() error) bool {
	what := "killed in the middle, and called again"
	if err := before(); err != nil {
		return l.check(verb, what, rely(1), skipped("it could not be prepared: %s", err))
	}
	r := l.call(next())
	if err := errors.Join(done(r), good()); err != nil {
		return l.check(verb, what, rely(1), l.verdictOr(err))
	}
	hit := 0
	var err error
	for i := 0; (i < l.kills || hit == 0 && i < l.kills+retries) && err == nil; i++ {
		if err = before(); err != nil {
			return l.check(verb, what, rely(1), skipped("it could not be prepared: %s", err))
		}
		at := r.took * time.Duration(i+1) / time.Duration(l.kills+1)
		if i >= l.kills { // the machine was slower when it was measured
			at = r.took >> (i - l.kills + 1)
		}
		at = max(time.Millisecond, at)
		in := next()
		in.stopAfter, in.stopWith = at, syscall.SIGKILL
		if l.call(in).stopped {
			hit++
		}
		if err = errors.Join(done(l.call(next())), good()); err != nil {
			err = l.verdictOr(fmt.Errorf("after a kill at %s: %w", at.Round(time.Millisecond), err))
		}
	}
	if err == nil && hit == 0 {
		err = skipped("the call ended before it could be killed")
	}
	ok := l.check(verb, what, rely(1), err)
	if !ok || before() != nil {
		return ok
	}
	in := next()
	in.stopAfter, in.stopWith = max(time.Millisecond, r.took/2), syscall.SIGTERM
	stop := l.call(in)
	err = nil
	switch {
	case !stop.stopped:
		err = skipped("the call ended before it could be stopped")
	case stop.hung:
		err = fmt.Errorf("it did not end within %s", killWait)
	case stop.code > 0 && stop.code != submodules.CodeDeadline:
		err = l.since11(fmt.Errorf("%s, not %d", stop, submodules.CodeDeadline))
	}
	l.check(verb, "ends soon after TERM", sectionCaller, err)
	return l.check(verb, "called again after TERM", rely(1), l.verdictOr(errors.Join(done(l.call(next())), good())))
}

// verdictOr returns the verdict inside of err, or else err itself.
func (l *life) verdictOr(err error) error {
	var v *verdict
	if errors.As(err, &v) {
		return v
	}
	return err
}
