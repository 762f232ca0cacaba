package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store/durable"
)

// hooked is the policy of a release with every hook but those that need more of a policy.
var hooked = func() string {
	var b strings.Builder
	for _, name := range policy.HookNames {
		if name == policy.HookMigrate || name == policy.HookEnabled {
			continue
		}
		b.WriteString("[[hooks]]\nname = '" + name + "'\n")
	}
	return b.String()
}()

// h1 to h4 have every hook. The hook pre-rollout of h3 refuses, and the hook status of
// h4 and h5 never says that the release is ready. h5 is left to a person then.
var (
	h1 = release{app: "shop", name: "shop-h1", images: v1.images, policy: hooked}
	h2 = release{app: "shop", name: "shop-h2", images: v2.images, policy: hooked}
	h3 = release{app: "shop", name: "shop-h3", images: v2.images, policy: hooked}
	h4 = release{app: "shop", name: "shop-h4", images: v2.images, policy: hooked}
	h5 = release{app: "shop", name: "shop-h5", images: v2.images, policy: "upgrades = {rollback_on_failure = false}\n" + hooked}
)

// refused reports whether a hook of the release fails.
func (r release) refused() bool { return r.name == h3.name || r.name == h4.name || r.name == h5.name }

// fakeHooks runs no program. It fails the test if a hook is run that must not be.
type fakeHooks struct {
	g         *rig
	state     modules.State // of the client
	ran       []string      // "hook release"
	calls     []hooks.Call
	fails     map[string]bool // "hook release"
	forbidden bool
	global    []string
	checked   map[string]bool // releases whose check was run
	during    func(hook string)
}

func newFakeHooks(g *rig) *fakeHooks {
	return &fakeHooks{g: g, checked: map[string]bool{}, fails: map[string]bool{"pre-rollout shop-h3": true, "status shop-h4": true, "status shop-h5": true}}
}

func (f *fakeHooks) AllowsHooks() bool                 { return !f.forbidden }
func (f *fakeHooks) Global(string) ([]string, error)   { return f.global, nil }
func (f *fakeHooks) Check(string, []policy.Hook) error { return nil }
func (f *fakeHooks) release(manifests string) (artifact string) {
	text, err := os.ReadFile(filepath.Join(manifests, "compose.yaml"))
	require.NoError(f.g.t, err)
	return strings.TrimPrefix(string(text), "compose of ")
}

func (f *fakeHooks) Run(_ context.Context, c hooks.Call) error {
	if f.during != nil {
		f.during(c.Name)
	}
	name := ""
	if c.Own.Name != "" {
		name = f.release(c.Manifests)
		a := f.g.app(f.g.t, c.Application)
		if d := a.Deployment; d != nil && c.Manifests == a.ReleaseManifests(d.To) && !d.Reused {
			accepted := d.Phase != journal.Downloading && (d.Phase != journal.Loaded || f.state == modules.ArtifactInstall)
			require.True(f.g.t, accepted, "%s of content that was not accepted, in phase %s, state %s", c.Name, d.Phase, f.state)
		}
	}
	f.ran, f.calls = append(f.ran, strings.TrimSpace(c.Name+" "+name)), append(f.calls, c)
	if err := durable.Point("inside.hook." + c.Name); err != nil {
		return err
	}
	if err := f.runMigration(c); err != nil {
		return err
	}
	if f.fails[c.Name+" "+name] {
		return errors.New(c.Name + " of " + c.Application + ": it says no")
	}
	if c.Name == policy.HookCheck {
		f.checked[name] = true
	}
	said, err := os.ReadFile(c.Handover)
	require.NoError(f.g.t, err)
	return os.WriteFile(c.Handover, append(said, (c.Name+" ")...), 0o600)
}

// TestHooksOfAnUpdate: which hooks are run, of which release, in which order, and what
// they are told.
func TestHooksOfAnUpdate(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := c.g
		f := newFakeHooks(g)
		g.hooks = f
		h2 := h2
		h2.version = "2.0.0"
		h1 := h1
		h1.version = "1.0.0"
		install := func(r release, run func(c *client, tr *tree) error) error {
			f.ran, f.calls = nil, nil
			return run(c, g.newTree(t, r))
		}
		require.NoError(t, install(h1, installCommit))
		require.Equal(t, []string{"post-load shop-h1", "check shop-h1", "pre-rollout shop-h1", "status shop-h1", "post-rollout shop-h1"}, f.ran)
		require.Empty(t, f.calls[0].Direction)

		require.NoError(t, install(h2, installRollback))
		require.Equal(t, []string{
			"pre-load shop-h1", "post-load shop-h2", "check shop-h2", "pre-rollout shop-h2", "status shop-h2", "post-rollout shop-h2",
			"pre-rollback shop-h2", "post-rollback shop-h1",
		}, f.ran)
		update, back := f.calls[3], f.calls[7]
		require.Equal(t, "install upgrade 1.0.0 2.0.0", strings.Join([]string{update.Operation, update.Direction, update.Old.Version, update.New.Version}, " "))
		require.Equal(t, "rollback downgrade 2.0.0 1.0.0", strings.Join([]string{back.Operation, back.Direction, back.Old.Version, back.New.Version}, " "))
		require.False(t, update.Automatic)
		g.runs(t, "shop", &h1)
		g.clean(t, "shop")
		handover, err := g.app(t, "shop").Handover()
		require.NoError(t, err)
		require.Nil(t, handover, "it ends with the deployment")

		require.ErrorContains(t, install(h3, installCommit), "refused: hook pre-rollout of shop: it says no")
		require.Equal(t, []string{"pre-load shop-h1", "post-load shop-h3", "check shop-h3", "pre-rollout shop-h3"}, f.ran)
		g.runs(t, "shop", &h1)
		g.clean(t, "shop")
		err = install(h4, installCommit)
		require.ErrorContains(t, err, "hook status of shop: it says no")
		require.NotErrorIs(t, err, ErrUnfit, "it was started")
		g.runs(t, "shop", &h1)
		g.clean(t, "shop")
		require.Equal(t, []string{"shop-h1 installed", "shop-h2 rolled-back", "shop-h3 refused", "shop-h4 rolled-back"}, g.history(t, "shop"))
		require.NoError(t, install(h2, installCommit))

		// A rollback that somebody asks for cannot be refused.
		f.ran = nil
		f.fails["pre-rollback shop-h2"], f.fails["post-rollback shop-h1"], f.fails["check shop-h1"] = true, true, true
		_, err = g.engine().GoBack(t.Context(), "shop", "")
		require.NoError(t, err)
		require.Equal(t, []string{"pre-rollback shop-h2", "status shop-h1", "post-rollback shop-h1"}, f.ran)
		g.runs(t, "shop", &h1)
	})
}

// TestHooksHandOn: a later call gets what a hook of an earlier one left.
func TestHooksHandOn(t *testing.T) {
	g := newRig(t)
	g.hooks = newFakeHooks(g)
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, h1)))
	handover, err := g.app(t, "shop").Handover()
	require.NoError(t, err)
	require.Equal(t, "post-load check pre-rollout status post-rollout ", string(handover))
}

// TestHooksOfAnOperator: stop, start and purge have hooks, and those before can refuse.
func TestHooksOfAnOperator(t *testing.T) {
	g := newRig(t)
	f := newFakeHooks(g)
	g.hooks = f
	c := newClient(g, true)
	require.NoError(t, installCommit(c, g.newTree(t, h1)))
	f.ran = nil
	f.fails["pre-stop shop-h1"] = true
	require.ErrorIs(t, g.engine().Stop(t.Context(), "shop"), ErrUnfit)
	g.runs(t, "shop", &h1)
	f.fails = map[string]bool{"post-stop shop-h1": true}
	require.NoError(t, g.engine().Stop(t.Context(), "shop"), "it is stopped already")
	require.NoError(t, g.engine().Start(t.Context(), "shop"))
	f.fails = map[string]bool{"pre-purge shop-h1": true}
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	require.ErrorIs(t, g.engine().Purge(t.Context(), "shop", false, false), ErrUnfit)
	require.NoError(t, g.engine().Purge(t.Context(), "shop", false, true), "a person insists")
	require.Equal(t, []string{
		"pre-stop shop-h1", "pre-stop shop-h1", "post-stop shop-h1", "pre-start shop-h1", "status shop-h1", "post-start shop-h1",
		"pre-stop shop-h1", "post-stop shop-h1", "pre-purge shop-h1", "pre-purge shop-h1", "post-purge shop-h1",
	}, f.ran)
	require.Nil(t, g.app(t, "shop"))
}

// TestForbiddenHooks: an artifact with hooks is refused by name, and hooks of an
// installed release are not run.
func TestForbiddenHooks(t *testing.T) {
	g := newRig(t)
	f := newFakeHooks(g)
	g.hooks = f
	c := newClient(g, true)
	require.NoError(t, installCommit(c, g.newTree(t, h1)))
	f.forbidden, f.ran, g.w.calls = true, nil, nil
	err := c.install(g.newTree(t, h2))
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "hooks of shop: the artifact has the hook check, and allow_hooks = false")
	require.Empty(t, g.w.calls, "nothing was loaded")
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	require.Empty(t, f.ran)

	// The device's own are run for every application, also for one without a policy.
	f.global = []string{"/etc/x"}
	require.NoError(t, installCommit(c, g.newTree(t, v2)))
	require.Equal(t, []string{"pre-load", "post-load", "check", "pre-rollout", "status", "post-rollout"}, f.ran)
}

// TestRebootHooks: they are run before and after the restart of the machine.
func TestRebootHooks(t *testing.T) {
	g := newRig(t)
	f := newFakeHooks(g)
	g.hooks = f
	c := newClient(g, true)
	c.daemon = true
	r := h2
	r.reboot = true
	require.NoError(t, installCommit(c, g.newTree(t, r)))
	require.Equal(t, []string{"pre-reboot shop-h2", "status shop-h2", "post-reboot shop-h2"}, f.ran[len(f.ran)-3:])
}
