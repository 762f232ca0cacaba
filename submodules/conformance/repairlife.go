package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/submodules"
)

// repair repairs the release that runs.
func (l *life) repair() {
	if !l.feature(submodules.FeatureRepair, submodules.VerbRepair, "what is whole needs no repair", rely(9), l.repairWhole) || !l.has(submodules.FeatureRepair) {
		return
	}
	if l.f.Damage == nil {
		l.check(submodules.VerbRepair, "makes what is damaged whole", rely(9), skipped("the fixture cannot damage a component"))
		return
	}
	l.check(submodules.VerbRepair, "makes what is damaged whole", rely(9), l.repairDamaged())
}

func (l *life) repairCall(dir, source string, options ...string) (apps []string, r reply) {
	in := call{args: []string{submodules.VerbRepair, l.app, dir}, components: l.f.Better.Components, options: options}
	if source != "" {
		in.args = append(in.args, source)
	}
	r = l.call(in)
	return strings.Fields(r.stdout), r
}

// own returns a new directory for REPAIR.
func (l *life) own() string {
	dir, err := os.MkdirTemp(l.c.temp, "repair-")
	if err != nil {
		panic(&stopped{err})
	}
	return dir
}

func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("it left %s in its directory", entries[0].Name())
	}
	return err
}

func (l *life) repairWhole() error {
	own := l.own()
	apps, r := l.repairCall(own, "")
	if err := errors.Join(done(r), empty(own)); err != nil {
		return err
	}
	if len(apps) > 0 {
		return fmt.Errorf("it prints %q", apps)
	}
	_, r = l.repairCall(own, "", submodules.OptionFinish)
	return errors.Join(done(r), empty(own), l.healthy())
}

func (l *life) repairDamaged() error {
	c := l.f.Better.Components[0]
	verify := call{args: []string{submodules.VerbVerify, l.app}, components: l.f.Better.Components}
	l.f.Damage(c)
	r := l.call(verify)
	if r.code != submodules.CodeFailed || r.stdout == "" {
		return fmt.Errorf("VERIFY does not find it: %s", r)
	}
	for line := range strings.Lines(r.stdout) {
		if !strings.HasPrefix(line, c.URL+": ") {
			return fmt.Errorf("VERIFY prints %s; each line should begin with %q", excerpt(line), c.URL+": ")
		}
	}
	own := l.own()
	if _, r = l.repairCall(own, ""); r.code != submodules.CodeContent {
		return fmt.Errorf("nothing has what is missing: %s, not %d", r, submodules.CodeContent)
	}
	if err := errors.Join(empty(own), l.healthy()); err != nil {
		return fmt.Errorf("a repair that was refused changed something: %w", err)
	}
	source := l.own()
	content, err := os.ReadFile(l.f.Better.Content[c.URL])
	if err = errors.Join(err, os.WriteFile(filepath.Join(source, "content"), content, 0o600)); err != nil {
		panic(&stopped{err})
	}
	apps, r := l.repairCall(own, source)
	if err := done(r); err != nil {
		return err
	}
	again, r := l.repairCall(own, "", submodules.OptionFinish)
	if err := done(r); err != nil {
		return fmt.Errorf("to finish it: %w", err)
	}
	if want := []string{l.app}; !slices.Equal(apps, want) || !slices.Equal(again, want) {
		return fmt.Errorf("it prints %q, then %q; %q should be rolled out again", apps, again, want)
	}
	if r = l.call(verify); r.code != 0 || r.stdout != "" {
		return fmt.Errorf("VERIFY still prints %s", excerpt(r.stdout))
	}
	return errors.Join(done(l.call(l.rollout("better", l.f.Better))), l.healthy())
}
