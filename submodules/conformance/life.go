package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
)

// life plays the life of an application: it makes the calls that the update module
// makes on a device, in the same order.
type life struct {
	*suite
	f     *Fixture
	stage []string // the options of LOAD
}

func (s *suite) life(f *Fixture) {
	l := &life{suite: s, f: f}
	if s.has(submodules.FeatureStage) {
		l.stage = []string{submodules.OptionStage}
	}
	if l.check(submodules.VerbList, "the fixture's application is not installed", sectionCall, l.absent()) {
		ended := false
		defer func() {
			if !ended { // the run was given up
				l.clean()
			}
		}()
		l.play()
		l.leave()
		ended = true
	}
}

// cleanWithin bounds the clean-up after a run was cancelled.
const cleanWithin = 30 * time.Second

// clean removes the application, whether ctx has ended or not.
func (l *life) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), cleanWithin)
	defer cancel()
	calls := []call{{args: []string{submodules.VerbPurge, l.app}, env: []string{submodules.EnvPurgeData + "=1"}}}
	for _, in := range append(calls, l.deletes()...) {
		_, _, _ = l.c.do(ctx, in) // what it can do, it does
	}
}

// deletes returns the calls that remove the components of all releases.
func (l *life) deletes() (list []call) {
	for _, r := range []Release{l.f.Good, l.f.Better, l.f.Bad} {
		for _, c := range r.Components {
			list = append(list, call{args: []string{submodules.VerbDelete, c.URL, l.app}, components: []submodules.Component{c}})
		}
	}
	return list
}

// absent returns an error if the application exists, so that the tests do not run on
// somebody's application.
func (l *life) absent() error {
	list, err := l.list()
	if err == nil && len(list) > 0 {
		return fmt.Errorf("%s is there already", l.app)
	}
	return err
}

// play runs the steps in order. It ends when a step fails that later steps need.
func (l *life) play() {
	for _, step := range []func() bool{l.first, l.update, l.failing, l.deleting, l.killed, l.stopping, l.asking} {
		if !step() {
			l.add(Finding{submodules.VerbRollout, "the rest of the application's life", sectionCall, Skipped, "a step before failed"})
			return
		}
	}
}

// place makes the release's manifests the current ones and returns their path.
func (l *life) place(id string, r Release) string {
	dir, link := l.write(id, r), filepath.Join(l.store, l.app, "manifests")
	if err := errors.Join(os.RemoveAll(link), os.Symlink(dir, link)); err != nil {
		panic(&stopped{err})
	}
	return link
}

// write writes the release's manifests, and returns their directory.
func (l *life) write(id string, r Release) string {
	dir := l.manifests(id)
	err := os.MkdirAll(dir, 0o755)
	for name, text := range r.Manifests {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	if err != nil {
		panic(&stopped{err})
	}
	return dir
}

// manifests returns the directory of a release's manifests.
func (l *life) manifests(id string) string {
	return filepath.Join(l.store, l.app, "releases", id, "manifests")
}

// rollout returns the call that rolls the release out.
func (l *life) rollout(id string, r Release) call {
	return call{args: []string{submodules.VerbRollout, l.app, l.place(id, r)}, components: r.Components}
}

// loads returns the calls that load the release's components.
func (l *life) loads(r Release) (list []call) {
	for _, c := range r.Components {
		list = append(list, call{args: []string{submodules.VerbLoad, l.app, c.URL, r.Content[c.URL]}, options: l.stage, components: []submodules.Component{c}})
	}
	return list
}

func (l *life) load(r Release) error {
	for _, in := range l.loads(r) {
		if err := l.twice(in); err != nil {
			return fmt.Errorf("%s: %w", in.args[2], err)
		}
	}
	return nil
}

// whole asserts that the release's components are present and complete: LIST has
// them, VERIFY finds no damage, and for files SAVE returns the content that LOAD was
// given.
func (l *life) whole(r Release) error {
	if l.has(submodules.FeatureVerify) {
		v := l.call(call{args: []string{submodules.VerbVerify, l.app}, components: r.Components})
		if v.code != 0 || v.stdout != "" {
			return fmt.Errorf("VERIFY prints %s (%s)", excerpt(v.stdout), v)
		}
	}
	for _, c := range r.Components {
		if err := l.listed(c, true); err != nil {
			return err
		}
		if c.Type == "image" {
			continue
		}
		path, err := l.save(c)
		if err != nil {
			return err
		}
		d, err := digest.OfFile(path)
		if err != nil {
			return fmt.Errorf("SAVE %s: %w", c.URL, err)
		}
		if d != c.Digest {
			return fmt.Errorf("SAVE %s gives content with the digest %s; LOAD got %s", c.URL, d, c.Digest)
		}
	}
	return nil
}

func (l *life) save(c submodules.Component) (path string, err error) {
	path = filepath.Join(l.c.temp, "saved-"+c.Digest.Hex())
	r := l.call(call{args: []string{submodules.VerbSave, l.app, c.URL, path}, components: []submodules.Component{c}})
	if err := done(r); err != nil {
		return "", fmt.Errorf("SAVE %s: %w", c.URL, err)
	}
	return path, nil
}

// listed asserts that LIST has a component, or that it does not. A 1.0 sub-module
// may list nothing.
func (l *life) listed(c submodules.Component, want bool) error {
	list, err := l.list()
	if err != nil {
		return err
	}
	has := slices.ContainsFunc(list, func(o submodules.Component) bool { return o.Digest == c.Digest })
	if has != want && !l.old() {
		return fmt.Errorf("LIST does not tell the truth: that it has %s with %s is %t", c.URL, c.Digest, has)
	}
	return nil
}

func (l *life) healthy() error { return l.answers(submodules.VerbHealthy, true) }

// first installs the first release.
func (l *life) first() bool {
	good := l.f.Good
	err := done(l.call(l.rollout("good", good)))
	if err == nil && len(good.Components) > 0 {
		err = l.since11(errors.New("exit code 0"))
	} else if err != nil {
		err = nil
	}
	l.check(submodules.VerbRollout, "a release without its components is refused", rely(4), err)
	l.check(submodules.VerbHealthy, "false after that", sectionCall, l.since11(l.answers(submodules.VerbHealthy, false)))
	l.check(submodules.VerbPurge, "succeeds, twice", rely(1), l.twice(call{args: []string{submodules.VerbPurge, l.app}}))
	l.feature(submodules.FeatureCheck, submodules.VerbCheck, "a first release: says what would start, and starts nothing", sectionReplies, func() error {
		c, err := l.changes("good", good)
		if err == nil && (len(c.Starts) == 0 || len(c.Restarts)+len(c.Keeps)+len(c.Removes) > 0) {
			err = fmt.Errorf("it says %+v", c)
		}
		return errors.Join(err, l.answers(submodules.VerbAlive, false))
	})
	l.wrongContent()
	if !l.check(submodules.VerbLoad, "succeeds, twice", rely(1), l.load(good)) ||
		!l.check(submodules.VerbLoad, "what it brought in is there and whole", rely(2), l.whole(good)) {
		return false
	}
	if l.has(submodules.FeatureSync) {
		l.check(submodules.VerbSync, "succeeds after LOAD", rely(3), done(l.run(submodules.VerbSync, l.app)))
	}
	if !l.check(submodules.VerbRollout, "succeeds, twice", rely(1), l.twice(l.rollout("good", good))) {
		return false
	}
	l.check(submodules.VerbAlive, "true after ROLLOUT", sectionCall, l.answers(submodules.VerbAlive, true))
	l.feature(submodules.FeatureStatus, submodules.VerbStatus, "alive and healthy, with its services", sectionReplies, func() error {
		st, err := l.status()
		if err == nil && (!st.Healthy || len(st.Services) == 0) {
			err = fmt.Errorf("it says %+v", st)
		}
		return err
	})
	l.feature(submodules.FeatureStatuses, submodules.VerbStatus, "several applications: a line for each, in their order", sectionReplies, l.several)
	l.feature(submodules.FeatureLogs, submodules.VerbLogs, "prints the newest lines of each instance", sectionReplies, func() error {
		return errors.Join(l.logs(0), l.logs(1), l.logs(submodules.DefaultLogLines))
	})
	return l.check(submodules.VerbHealthy, "true after ROLLOUT", sectionCall, l.healthy())
}

// wrongContent loads content that does not match the metadata.
func (l *life) wrongContent() {
	const what = "content of another digest is refused and removed"
	if !l.has(submodules.FeatureComponents) || len(l.f.Good.Components) == 0 {
		l.check(submodules.VerbLoad, what, rely(2), notClaimed("it does not have the feature %s", submodules.FeatureComponents))
		return
	}
	in := l.loads(l.f.Good)[0]
	c := in.components[0]
	c.Digest = l.f.Better.Components[0].Digest
	in.components = []submodules.Component{c}
	r := l.call(in)
	err := l.listed(c, false)
	if r.code != submodules.CodeContent {
		err = fmt.Errorf("%s, not %d", r, submodules.CodeContent)
	}
	l.check(submodules.VerbLoad, what, rely(2), err)
}

// update installs the next release over the first.
func (l *life) update() bool {
	better := l.f.Better
	l.feature(submodules.FeatureCheck, submodules.VerbCheck, "the next release: says what would change, and changes nothing", sectionReplies, func() error {
		c, err := l.changes("better", better)
		if err == nil && len(c.Starts)+len(c.Restarts)+len(c.Removes) == 0 {
			err = fmt.Errorf("it says %+v", c)
		}
		if same, serr := l.changes("good", l.f.Good); err == nil && (serr != nil || len(same.Keeps) == 0 || len(same.Starts)+len(same.Restarts)+len(same.Removes) > 0) {
			err = errors.Join(serr, fmt.Errorf("of the release that runs it says %+v", same))
		}
		return errors.Join(err, l.healthy(), l.whole(l.f.Good))
	})
	if l.stage == nil {
		return l.check(submodules.VerbLoad, "the next release: succeeds, twice", rely(1), errors.Join(l.load(better), l.whole(better))) &&
			l.check(submodules.VerbRollout, "the next release: succeeds, twice", rely(1), l.twice(l.rollout("better", better))) &&
			l.check(submodules.VerbHealthy, "true after the update", sectionCall, l.healthy())
	}
	return l.check(submodules.VerbLoad, "staged: succeeds, twice", rely(1), errors.Join(l.load(better), l.load(l.f.Bad))) &&
		l.check(submodules.VerbLoad, "staged: nothing that runs has changed", rely(2), errors.Join(l.healthy(), l.whole(l.f.Good))) &&
		l.check(submodules.VerbRollout, "the next release: succeeds, twice", rely(1), l.twice(l.rollout("better", better))) &&
		l.check(submodules.VerbHealthy, "true after the update", sectionCall, l.healthy())
}

// failing installs a release that does not become healthy, and rolls it back.
func (l *life) failing() bool {
	better, bad := l.f.Better, l.f.Bad
	if len(bad.Manifests) == 0 && len(bad.Components) == 0 {
		l.check(submodules.VerbRollback, "a failed release goes back", sectionCall, skipped("the fixture has no bad release"))
		return true
	}
	copies := map[string]string{}
	if l.stage == nil {
		// The caller saves what LOAD overwrites, and loads it again to roll back.
		for _, c := range better.Components {
			path, err := l.save(c)
			if !l.check(submodules.VerbSave, "copies what LOAD overwrites", rely(3), err) {
				return false
			}
			copies[c.URL] = path
		}
		if !l.check(submodules.VerbLoad, "a release that will fail: succeeds", rely(1), l.load(bad)) {
			return false
		}
	}
	r := l.call(l.rollout("bad", bad))
	var err error
	switch {
	case r.code == submodules.CodeDone:
		err = errors.New("exit code 0")
	case r.code != submodules.CodeUnhealthy:
		err = l.since11(fmt.Errorf("%s, not %d", r, submodules.CodeUnhealthy))
	}
	l.check(submodules.VerbRollout, "a release that does not become healthy fails", sectionCodes, err)
	l.check(submodules.VerbHealthy, "false after that", sectionCall, l.since11(l.answers(submodules.VerbHealthy, false)))
	l.feature(submodules.FeatureStatus, submodules.VerbStatus, "names the service that is not well, and why", sectionReplies, func() error {
		st, err := l.status()
		told := slices.ContainsFunc(st.Services, func(v submodules.Service) bool { return v.Health != submodules.Healthy && v.Failure != "" })
		if err == nil && (st.Healthy || !told) {
			err = fmt.Errorf("it says %+v", st)
		}
		return err
	})

	for _, in := range l.loads(better) {
		if path := copies[in.args[2]]; path != "" {
			in.args[3] = path
			if !l.check(submodules.VerbLoad, "takes what SAVE gave", rely(3), done(l.call(in))) {
				return false
			}
		}
	}
	back := call{args: []string{submodules.VerbRollback, l.app, l.place("better", better), l.manifests("bad")}, components: better.Components}
	if !l.check(submodules.VerbRollback, "succeeds, twice", rely(1), l.twice(back)) {
		return false
	}
	if err = l.healthy(); err != nil && l.stage == nil {
		if err = done(l.call(l.rollout("better", better))); err == nil {
			err = l.healthy()
		}
	}
	return l.check(submodules.VerbHealthy, "true after the release went back", rely(3), errors.Join(err, l.whole(better)))
}

// deleting deletes components: those in use must stay, the others must be removed.
func (l *life) deleting() bool {
	good, better := l.f.Good, l.f.Better
	var err error
	for _, c := range better.Components {
		err = errors.Join(err, done(l.call(call{args: []string{submodules.VerbDelete, c.URL, l.app}, components: []submodules.Component{c}})))
	}
	if err = l.since11(errors.Join(err, l.whole(better), l.healthy())); err != nil {
		l.check(submodules.VerbDelete, "what is in use stays", rely(5), err)
		err = errors.Join(l.load(better), done(l.call(l.rollout("better", better))), l.healthy())
		return l.check(submodules.VerbLoad, "brings back what was deleted", rely(1), err)
	}
	l.check(submodules.VerbDelete, "what is in use stays", rely(5), err)
	err = nil
	for _, c := range good.Components {
		if slices.ContainsFunc(better.Components, func(o submodules.Component) bool { return o.Digest == c.Digest }) {
			continue
		}
		err = errors.Join(err, l.deleteOne(c))
	}
	return l.check(submodules.VerbDelete, "what is not in use goes; succeeds, twice", rely(5), errors.Join(err, l.healthy(), l.whole(better)))
}

// deleteOne deletes a component that nothing uses. If the application also knows it
// by another name, it is still needed and must stay.
func (l *life) deleteOne(c submodules.Component) error {
	var err error
	other := c
	if l.stage != nil && l.has(submodules.FeatureComponents) {
		other.URL = c.URL + "-other"
		both := []submodules.Component{c, other}
		err = errors.Join(
			done(l.call(call{args: []string{submodules.VerbLoad, l.app, other.URL, os.DevNull}, options: l.stage, components: both})),
			l.twice(call{args: []string{submodules.VerbDelete, c.URL, l.app}, components: both}),
			l.listed(c, true))
	} else if l.stage == nil {
		return l.listed(c, false) // the next release has overwritten it
	}
	return errors.Join(err, l.twice(call{args: []string{submodules.VerbDelete, other.URL, l.app}, components: []submodules.Component{other}}), l.listed(c, false))
}

// stopping stops the application and starts it again.
func (l *life) stopping() bool {
	dir := l.place("better", l.f.Better)
	stop, start := call{args: []string{submodules.VerbStop, l.app, dir}, components: l.f.Better.Components}, call{args: []string{submodules.VerbStart, l.app, dir}, components: l.f.Better.Components}
	l.check(submodules.VerbStop, "succeeds, twice", rely(1), l.twice(stop))
	l.check(submodules.VerbAlive, "false after STOP", sectionCall, l.since11(l.answers(submodules.VerbAlive, false)))
	l.check(submodules.VerbStop, "removes nothing", sectionCall, l.whole(l.f.Better))
	l.kill(stop, func() error { return l.since11(l.answers(submodules.VerbAlive, false)) }, func() error { return done(l.call(start)) })
	l.check(submodules.VerbStart, "succeeds, twice", rely(1), l.twice(start))
	l.kill(start, l.healthy, func() error { return done(l.call(stop)) })
	return l.check(submodules.VerbHealthy, "true after START", sectionCall, l.healthy())
}

// asking exports the application's manifests and components.
func (l *life) asking() bool {
	better := l.f.Better
	out := filepath.Join(l.c.temp, "exported")
	if err := os.MkdirAll(out, 0o755); err != nil {
		panic(&stopped{err})
	}
	err := done(l.run(submodules.VerbExportManifest, l.app, out))
	for name, text := range better.Manifests {
		got, rerr := os.ReadFile(filepath.Join(out, name))
		if err == nil && (rerr != nil || string(got) != text) {
			err = fmt.Errorf("%s is not the release's", name)
		}
	}
	l.check(submodules.VerbExportManifest, "writes the manifests", sectionCall, l.since11(err))
	err = nil
	for _, c := range better.Components {
		path, serr := l.save(c)
		fi, ferr := os.Stat(path)
		if serr == nil && (ferr != nil || fi.Size() == 0) {
			serr = fmt.Errorf("SAVE %s wrote nothing", c.URL)
		}
		err = errors.Join(err, serr)
	}
	l.check(submodules.VerbSave, "writes the components", sectionCall, err)
	l.repair()
	return true
}

// leave checks PURGE, which removes the application, and deletes the components that
// it left.
func (l *life) leave() {
	purge := call{args: []string{submodules.VerbPurge, l.app}, env: []string{submodules.EnvPurgeData + "=1"}}
	err := l.twice(purge)
	l.check(submodules.VerbPurge, "removes the application; succeeds, twice", rely(1), err)
	list, err := l.list()
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("LIST still has %s", list[0].URL)
	}
	l.check(submodules.VerbList, "a list without components after PURGE", sectionCall, err)
	l.check(submodules.VerbHealthy, "false after PURGE", sectionCall, l.since11(l.answers(submodules.VerbHealthy, false)))
	err = nil
	for _, p := range l.c.mine() {
		err = fmt.Errorf("%s still runs", p.name)
	}
	l.check(submodules.VerbPurge, "ends the application's processes", sectionCall, err)
	for _, in := range l.deletes() {
		l.call(in)
	}
}

// changes calls CHECK with a copy of a release's manifests that nothing runs from.
func (l *life) changes(id string, r Release) (c submodules.Changes, err error) {
	reply := l.call(call{args: []string{submodules.VerbCheck, l.app, l.write("check-"+id, r)}, components: r.Components})
	if err := done(reply); err != nil {
		return c, err
	}
	if json.Unmarshal([]byte(reply.stdout), &c) != nil || c.Starts == nil || c.Restarts == nil || c.Keeps == nil || c.Removes == nil {
		return c, fmt.Errorf("it prints %s, which is not what would change", excerpt(reply.stdout))
	}
	for _, list := range [][]string{c.Starts, c.Restarts, c.Keeps, c.Removes} {
		if !slices.IsSorted(list) {
			return c, fmt.Errorf("%q is not sorted", list)
		}
	}
	return c, nil
}
