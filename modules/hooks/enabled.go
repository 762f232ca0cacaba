package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file decides whether a managed application may run at all, and keeps the
// decision. It must not know how an application is stopped.

// CheckEnabled refuses a value of values.Enabled that is neither true nor false.
func CheckEnabled(name, value string) error {
	if name == settings.Enabled && value != "true" && value != "false" {
		return fmt.Errorf("%s is true or false, not %q", settings.Enabled, clip.Text(value))
	}
	return nil
}

// deciding runs the hook enabled. *Runner implements it.
type deciding interface {
	AllowsHooks() bool
	Global(name string) ([]string, error)
	Run(ctx context.Context, c Call) error
}

// Decider decides.
type Decider struct {
	Hooks  deciding // nil: there are none
	Values settings.Values
	// Store is for temporary files; nil: its lock is not held, so they are elsewhere.
	Store *store.Store
}

// Decide returns why a release must not run, or "" if it may. c is the call of the hook;
// Decide fills in its files. The operator's value wins over the device's, and that over the
// policy. If the result is true, the hook decides.
func (d Decider) Decide(ctx context.Context, p *policy.Policy, c Call) (off string, err error) {
	if p == nil || !p.Managed {
		return "", nil
	}
	if p.Enabled != nil && !*p.Enabled {
		off = "its policy says enabled = false"
	}
	list, bad := d.Values.List(c.Application)
	for _, v := range list {
		if v.Name != settings.Enabled {
			continue
		}
		if err := CheckEnabled(v.Name, v.Value); err != nil {
			return "", fmt.Errorf("the %s's value: %w", v.Of, err)
		}
		if off = ""; v.Value == "false" {
			off = fmt.Sprintf("the %s's value enabled is false", v.Of)
		}
	}
	if off != "" || d.Hooks == nil {
		return off, nil
	}
	own, found := p.Hook(policy.HookEnabled)
	global, err := d.Hooks.Global(policy.HookEnabled)
	if err != nil || len(global) == 0 && (!found || !d.Hooks.AllowsHooks()) {
		return "", err
	}
	if bad != nil {
		return "", bad
	}
	if c.Name = policy.HookEnabled; found && d.Hooks.AllowsHooks() {
		c.Own = own
	}
	return d.ask(ctx, c, list)
}

// ask runs the hook and reads its answer.
func (d Decider) ask(ctx context.Context, c Call, list []settings.Value) (off string, err error) {
	temp := func() (string, error) { return scratch.Dir("", scratch.Prefix) }
	if d.Store != nil {
		temp = d.Store.Temp
	}
	dir, err := temp()
	if err != nil {
		return "", err
	}
	defer scratch.Remove(dir)
	c.Values, c.Result = filepath.Join(dir, "values"), filepath.Join(dir, "result")
	if err := os.WriteFile(c.Values, submodules.EncodeValues(settings.ByName(list)), 0o600); err != nil {
		return "", err
	}
	if err := d.Hooks.Run(ctx, c); err != nil {
		return "", fmt.Errorf("hook %w", err)
	}
	return answer(c.Result)
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 512

// answer reads what a hook has written: true, or false and the reason.
func answer(file string) (off string, err error) {
	st, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!st.Mode().IsRegular() || st.Size() > maxAnswer) {
		return "", fmt.Errorf("hook %s: it wrote no answer to MENDER_APP_RESULT, of at most %d bytes", policy.HookEnabled, maxAnswer)
	}
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	word, reason, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	may, err := strconv.ParseBool(word)
	switch {
	case err != nil || word != "true" && word != "false":
		return "", fmt.Errorf("hook %s: its answer %q is neither true nor false", policy.HookEnabled, clip.Text(word))
	case may:
		return "", nil
	case reason == "":
		return "its hook enabled says so", nil
	}
	return "its hook enabled says: " + clip.Line(reason, maxAnswer), nil
}

// NoteDisabled notes in the state of an application why a release must not run, "" for nothing. The
// caller saves the state.
func NoteDisabled(a *store.App, release, off string) {
	next := map[string]string{}
	for id, why := range a.Off {
		if id == a.Current || a.Deployment != nil && id == a.Deployment.To {
			next[id] = why
		}
	}
	delete(next, release)
	if off != "" {
		next[release] = off
	}
	if a.Off = next; len(next) == 0 {
		a.Off = nil
	}
}

// RecordDisabled makes durable why the current release of an application must not run. It does
// nothing if the release is not the current one any more.
func RecordDisabled(ctx context.Context, s *store.Store, app, release, off string) error {
	unlock, err := s.Lock(ctx, "reconcile of "+app)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := s.App(app)
	if err != nil || a.Current != release || a.Deployment != nil || a.Off[release] == off {
		return err
	}
	NoteDisabled(a, release, off)
	return a.Save()
}
