package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// stores is a policy with data.
const stores = `[data]
volumes = ['db']
snapshot = true
migrate = 'hooks/migrate'
[[hooks]]
name = 'migrate'
`

// ran is stores with a command in the place of the hook.
const ran = `[data]
volumes = ['db']
snapshot = true
migrate = {service = 'web', command = ['migrate']}
`

// k1 to k4 store data, each in a form of its own. k3 does not get healthy, and the
// migration to k4 fails.
var (
	k1 = release{app: "shop", name: "shop-k1", images: v1.images, policy: stores}
	k2 = release{app: "shop", name: "shop-k2", images: v2.images, policy: stores}
	k3 = release{app: "shop", name: "shop-k3", images: v3.images, policy: stores, sick: true}
	k4 = release{app: "shop", name: "shop-k4", images: v2.images, policy: stores}
	// k5 migrates with a command, and that of k6 fails.
	k5 = release{app: "shop", name: "shop-k5", images: v2.images, policy: ran}
	k6 = release{app: "shop", name: "shop-k6", images: v3.images, policy: ran}
)

var dataScenarios = []scenario{
	{name: "data: update", first: &k1, run: installCommit, what: k2, data: true},
	{name: "data: update fails", first: &k1, run: installCommit, what: k3, data: true},
	{name: "data: update rolled back", first: &k1, run: installRollback, what: k2, data: true},
	{name: "data: migration fails", first: &k1, run: installCommit, what: k4, data: true},
	{name: "data: command", first: &k1, run: installCommit, what: k5, data: true},
	{name: "data: command rolled back", first: &k1, run: installRollback, what: k5, data: true, alike: true},
	{name: "data: command fails", first: &k1, run: installCommit, what: k6, data: true, alike: true},
}

// dataWorld is a volume on disk. It notices a release that runs on the data of another.
type dataWorld struct {
	dir   string // of the volume; it is made by the first release
	wrong []string
	// working is what a command does that was not waited for to its end: the engine goes on
	// with it until STOP ends it, or a power cut.
	working func() error
}

// newDataRig is a rig whose applications store data.
func newDataRig(t testing.TB) *rig {
	g := newRig(t)
	g.hooks = newFakeHooks(g)
	g.hooks.fails["migrate shop-k4"] = true
	g.w.data = &dataWorld{dir: filepath.Join(g.dir, "volumes", "db")}
	g.w.features = append(g.w.features, submodules.FeatureData, submodules.FeatureRun)
	return g
}

func (d *dataWorld) read(t tb, name string) string {
	text, err := os.ReadFile(filepath.Join(d.dir, name))
	require.NoError(t, err)
	return string(text)
}

// started is called when a release is started: it writes to its data.
func (d *dataWorld) started(compose string) error {
	if d == nil || !strings.Contains(compose, "shop-k") {
		return nil
	}
	if d.working != nil {
		d.wrong = append(d.wrong, compose+" was started while a command works on the data")
	}
	form, err := os.ReadFile(filepath.Join(d.dir, "form"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := os.MkdirAll(d.dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(d.dir, "form"), []byte(compose), 0o644); err != nil {
			return err
		}
	case err != nil:
		return err
	case string(form) != compose:
		d.wrong = append(d.wrong, fmt.Sprintf("%s runs on the data of %s", compose, form))
	}
	return durable.Append(filepath.Join(d.dir, "log"), []byte(compose+"\n"), 1<<20)
}

// migrate is the hook.
func (d *dataWorld) migrate(t tb, from, to, data string) error {
	at, err := filepath.EvalSymlinks(filepath.Join(data, "db"))
	require.NoError(t, err)
	require.Equal(t, d.dir, at)
	if form := d.read(t, "form"); form != from {
		d.wrong = append(d.wrong, fmt.Sprintf("%s is migrated from %s", form, from))
	}
	if err := os.WriteFile(filepath.Join(d.dir, "form"), []byte("half of "+to), 0o644); err != nil {
		return err
	}
	if err := durable.Point("inside.migrate"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, "form"), []byte(to), 0o644)
}

// is asserts that the data is that of a release, and that no release ran on the data of
// another one.
func (d *dataWorld) is(t tb, want *release) {
	t.Helper()
	if d == nil {
		return
	}
	require.Empty(t, d.wrong)
	if want.policy != stores && want.policy != ran {
		return
	}
	require.Nil(t, d.working, "a command works on the data of %s", want.name)
	require.Equal(t, want.compose(), d.read(t, "form"))
	for line := range strings.Lines(d.read(t, "log")) {
		line = strings.TrimSpace(line)
		require.True(t, line == want.compose() || line == k1.compose(), "%s has written to the data of %s", line, want.name)
	}
}

func (w *world) Volumes(_ context.Context, r submodules.VolumesRequest) ([]submodules.Volume, error) {
	if err := w.enter("VOLUMES", r.Request); err != nil || w.data == nil {
		return nil, err
	}
	if r.Make {
		if err := os.MkdirAll(w.data.dir, 0o755); err != nil {
			return nil, err
		}
	}
	v := submodules.Volume{Name: "db"}
	if _, err := os.Stat(w.data.dir); err == nil {
		v.Dir = w.data.dir
	}
	return []submodules.Volume{v}, nil
}

// Run is a migration that goes on when who asked for it is killed.
func (w *world) Run(_ context.Context, r submodules.RunRequest) error {
	if err := w.enter("RUN", r.Request); err != nil {
		return err
	}
	next, err := os.ReadFile(filepath.Join(r.Dir, "compose.yaml"))
	if err != nil {
		return err
	}
	if r.Service != "web" || len(r.Words) != 1 || r.Words[0] != "migrate" {
		return fmt.Errorf("RUN of what: %s %q", r.Service, r.Words)
	}
	if r.Probe {
		return nil
	}
	if _, runs := w.running[r.App]; runs {
		w.data.wrong = append(w.data.wrong, "a command is run while the application runs")
	}
	form := filepath.Join(w.data.dir, "form")
	write := func(text string) func() error {
		return func() error { return os.WriteFile(form, []byte(text), 0o644) }
	}
	if was, err := os.ReadFile(form); err != nil || string(was) != k1.compose() {
		w.data.wrong = append(w.data.wrong, fmt.Sprintf("%s is migrated by a command: %v", was, err))
	}
	w.data.working = write("what an old command wrote")
	if err := write("half of " + string(next))(); err != nil {
		return err
	}
	if err := durable.Point("inside.RUN"); err != nil {
		return err
	}
	w.data.working = nil
	if string(next) == k6.compose() {
		return errors.New("the command in web exited with 3")
	}
	return write(string(next))()
}

// ends ends a command that works on the data. Until then it has written.
func (d *dataWorld) ends() error {
	if d == nil || d.working == nil {
		return nil
	}
	defer func() { d.working = nil }()
	return d.working()
}

// runMigration is the hook migrate of the model.
func (f *fakeHooks) runMigration(c hooks.Call) error {
	if c.Own.Name != policy.HookMigrate {
		return nil
	}
	return f.g.w.data.migrate(f.g.t, "compose of "+f.release(c.Old.Dir), "compose of "+f.release(c.New.Dir), c.Data)
}

// TestDataGoesWithItsRelease: forward by a migration, back with the copy, and back by hand
// with the copy that was kept.
func TestDataGoesWithItsRelease(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		g := newDataRig(t)
		c.g = g
		require.NoError(t, installCommit(c, g.newTree(t, k1)))
		g.w.data.is(t, &k1)
		require.Error(t, installCommit(c, g.newTree(t, k3)))
		g.runs(t, "shop", &k1)
		g.clean(t, "shop")
		require.ErrorContains(t, installCommit(c, g.newTree(t, k4)), "migrate of shop: it says no")
		g.runs(t, "shop", &k1)
		require.NoError(t, installCommit(c, g.newTree(t, k2)))
		g.runs(t, "shop", &k2)
		a := g.app(t, "shop")
		require.DirExists(t, a.DataDir(a.Kept[0]), "kept with its release")

		for _, want := range []release{k1, k2, k1} {
			r, err := g.engine().GoBack(t.Context(), "shop", want.name)
			require.NoError(t, err)
			require.Equal(t, want.name, r.ArtifactName)
			g.runs(t, "shop", &want)
			g.clean(t, "shop")
		}
		// A release that does not copy data leaves it as it is.
		require.NoError(t, installCommit(c, g.newTree(t, v4)))
		require.Equal(t, k1.compose(), g.w.data.read(t, "form"))
		require.Empty(t, g.w.data.wrong)
	})
}

// TestGoBackWithDataKilledAnywhere kills a rollback by hand at each point.
func TestGoBackWithDataKilledAnywhere(t *testing.T) {
	first, step := stride()
	for point := first; ; point += step {
		g := newDataRig(t)
		c := newClient(g, true)
		require.NoError(t, installCommit(c, g.newTree(t, k1)))
		require.NoError(t, installCommit(c, g.newTree(t, k2)))
		passed, killed := 0, false
		func() {
			restore := durable.Inject(func(string) error {
				if passed++; killed || passed == point {
					killed = true
					panic(errKilled)
				}
				return nil
			})
			defer restore()
			defer func() {
				if p := recover(); p != nil && p != errKilled {
					panic(p)
				}
			}()
			_, err := g.engine().GoBack(t.Context(), "shop", "")
			require.NoError(t, err)
		}()
		if !killed {
			g.remove()
			require.Greater(t, point, 20)
			return
		}
		g.w.powerCut()
		g.boot++
		found, err := g.engine().Resume(t.Context(), "mender-app", "")
		require.NoError(t, err)
		for _, f := range found {
			require.NoError(t, f.Err, "killed at point %d", point)
		}
		// A person's rollback has no client: resume ends it one way or the other.
		a := g.app(t, "shop")
		if a.Deployment != nil {
			found, err = g.engine().Resume(t.Context(), a.Deployment.Driver, "")
			require.NoError(t, err)
			require.NoError(t, found[0].Err)
			a = g.app(t, "shop")
		}
		require.Nil(t, a.Deployment, "killed at point %d", point)
		want := &k2
		if r, err := a.Release(a.Current); err == nil && r.ArtifactName == k1.name {
			want = &k1
		}
		g.runs(tbAt{t, fmt.Sprintf("killed at point %d", point)}, "shop", want)
		g.clean(tbAt{t, fmt.Sprintf("killed at point %d", point)}, "shop")
		g.remove()
	}
}

// TestDataIsRefused: what cannot be copied refuses the update before anything is stopped.
func TestDataIsRefused(t *testing.T) {
	real := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(real, "data"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(real, "theirs", "data"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(real, "open", "data"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(real, "open"), 0o777))
	require.NoError(t, os.Symlink(real, filepath.Join(real, "link")))
	for says, c := range map[string]struct {
		policy string
		spoil  func(g *rig)
	}{
		"data.snapshot of shop: the sub-module fake cannot keep data still": {stores, func(g *rig) { g.w.features = newWorld().features }},
		"data.migrate of shop: the sub-module fake cannot run a command":    {ran, func(g *rig) { g.w.features = append(newWorld().features, submodules.FeatureData) }},
		"the manifests have no volume other":                                {strings.Replace(stores, "'db'", "'other'", 1), nil},
		"/etc/shop has what is not the application's: /etc":                 {strings.Replace(stores, "volumes = ['db']", "directories = ['/etc/shop']", 1), nil},
		"others than root can change " + real + "/open":                     {strings.Replace(stores, "volumes = ['db']", "directories = ['"+real+"/open/data']", 1), nil},
		"/theirs belongs to user 65534, who can put another directory in the place": {strings.Replace(stores, "volumes = ['db']", "directories = ['"+real+"/theirs/data']", 1), func(*rig) {
			if err := os.Chown(filepath.Join(real, "theirs"), 65534, 65534); err != nil {
				t.Skip("needs root: a directory of another user")
			}
		}},
		"/link/data leads to /": {strings.Replace(stores, "volumes = ['db']", "directories = ['"+real+"/link/data']", 1), nil},
	} {
		t.Run(says, func(t *testing.T) {
			g := newDataRig(t)
			c1 := newClient(g, true)
			require.NoError(t, installCommit(c1, g.newTree(t, k1)))
			if c.spoil != nil {
				c.spoil(g)
			}
			next := k2
			next.policy = c.policy
			g.w.calls = nil
			err := c1.install(g.newTree(t, next))
			require.ErrorIs(t, err, ErrUnfit)
			require.ErrorContains(t, err, says)
			for _, call := range g.w.calls {
				require.NotContains(t, call, "STOP")
			}
			g.runs(t, "shop", &k1)
			g.clean(t, "shop")
			require.Equal(t, []string{"shop-k1 installed", "shop-k2 refused"}, g.history(t, "shop"))
		})
	}
}
