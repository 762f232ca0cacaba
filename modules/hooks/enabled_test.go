package hooks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
)

// answers is a hook that writes an answer; "" for none.
type answers struct {
	text   string
	err    error
	forbid bool
	asked  int
	values string // that it got
}

func (a *answers) AllowsHooks() bool             { return !a.forbid }
func (*answers) Global(string) ([]string, error) { return nil, nil }
func (a *answers) Run(_ context.Context, c Call) error {
	a.asked++
	data, err := os.ReadFile(c.Values)
	if err != nil {
		return err
	}
	a.values = string(data)
	if a.text != "" {
		err = os.WriteFile(c.Result, []byte(a.text), 0o600)
	}
	return errors.Join(err, a.err)
}

// The policy, the device's value, the operator's value, and then the hook.
func TestDecide(t *testing.T) {
	no, yes := false, true
	fails := errors.New("fails")
	for name, c := range map[string]struct {
		policy           *bool
		device, operator string
		hook             *answers
		want, fails      string
		asked            int
	}{
		"nothing":                      {},
		"the policy":                   {policy: &no, want: "its policy says enabled = false"},
		"the device over the policy":   {policy: &no, device: "true"},
		"the device":                   {policy: &yes, device: "false", want: "the device's value enabled is false"},
		"the operator over the device": {device: "false", operator: "true"},
		"the operator":                 {device: "true", operator: "false", want: "the operator's value enabled is false"},
		"neither true nor false":       {device: "perhaps", fails: `enabled is true or false, not "perhaps"`},
		"the hook agrees":              {hook: &answers{text: "true\n"}, asked: 1},
		"the hook does not":            {hook: &answers{text: "false"}, asked: 1, want: "its hook enabled says so"},
		"the hook says why":            {hook: &answers{text: "false no camera\n"}, asked: 1, want: "its hook enabled says: no camera"},
		"the hook is not asked":        {operator: "false", hook: &answers{text: "true"}, want: "the operator's value enabled is false"},
		"the hook is forbidden":        {hook: &answers{text: "false", forbid: true}},
		"the hook fails":               {hook: &answers{text: "true", err: fails}, asked: 1, fails: "fails"},
		"the hook says nothing":        {hook: &answers{}, asked: 1, fails: "no answer"},
		"the hook says something else": {hook: &answers{text: "maybe"}, asked: 1, fails: "neither true nor false"},
		"the hook says too much":       {hook: &answers{text: "false " + string(make([]byte, maxAnswer))}, asked: 1, fails: "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings.Values{Store: store.At(t.TempDir()), Dir: t.TempDir()}
			require.NoError(t, s.Store.Prepare())
			if c.device != "" {
				require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "10.env"), []byte("enabled="+c.device+"\nA=b\n"), 0o644))
			}
			if c.operator != "" {
				require.NoError(t, s.Change(t.Context(), "shop", map[string]string{"enabled": c.operator}, nil))
			}
			d := Decider{Values: s}
			p := &policy.Policy{Managed: true, Enabled: c.policy}
			if c.hook != nil {
				d.Hooks = c.hook
				p.Hooks = []policy.Hook{{Name: policy.HookEnabled}}
			}
			off, err := d.Decide(t.Context(), p, Call{Application: "shop"})
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.want, off)
			if c.hook != nil {
				require.Equal(t, c.asked, c.hook.asked)
			}
			off, err = d.Decide(t.Context(), nil, Call{Application: "shop"})
			require.NoError(t, err)
			require.Empty(t, off, "only a managed application is disabled")
		})
	}
}

// Reasons are kept for the current and the incoming release alone.
func TestNote(t *testing.T) {
	a := &store.App{State: store.State{Current: "2", Deployment: &store.Deployment{To: "3"}, Off: map[string]string{"1": "x", "2": "y"}}}
	NoteDisabled(a, "3", "z")
	require.Equal(t, map[string]string{"2": "y", "3": "z"}, a.Off)
	NoteDisabled(a, "3", "")
	NoteDisabled(a, "2", "")
	require.Nil(t, a.Off)
}
