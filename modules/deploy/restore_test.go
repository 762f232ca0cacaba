package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// restore makes the calls of mender-app restore for k1, whose data has the file kept.
func (g *rig) restore(t *testing.T, tr *tree) error {
	if err := g.call(modules.Download, tr); err != nil {
		return err
	}
	err := g.engine().Restore(t.Context(), "shop", func(a *store.App) error {
		a.Services = map[string]store.ServiceChoice{"web": {Enabled: true, Release: a.Deployment.To}}
		return appdata.Put(a, []appdata.Place{{Volume: "db"}}, func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "0"), 0o755); err != nil {
				return err
			}
			for name, text := range map[string]string{"kept": "yes", "form": k1.compose()} {
				if err := os.WriteFile(filepath.Join(dir, "0", name), []byte(text), 0o644); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, s := range []modules.State{modules.ArtifactInstall, modules.ArtifactCommit, modules.Cleanup} {
		if err := g.call(s, tr); err != nil {
			return err
		}
	}
	return g.engine().Restored(t.Context(), "shop")
}

// TestRestoreKilledAnywhere: wherever a restore is killed, the application is there with its
// data, or neither is. It never runs without.
func TestRestoreKilledAnywhere(t *testing.T) {
	first, step := stride()
	for point := first; ; point += step {
		g := newDataRig(t)
		tr := g.newTree(t, k1)
		passed, killed := 0, false
		func() {
			end := durable.Inject(func(string) error {
				if passed++; killed || passed == point {
					killed = true
					panic(errKilled)
				}
				return nil
			})
			defer end()
			defer func() {
				if p := recover(); p != nil && p != errKilled {
					panic(p)
				}
			}()
			_ = g.restore(t, tr)
		}()
		if killed {
			g.w.powerCut()
			g.boot++
			if apps, err := g.engine().Store.Apps(); err == nil && len(apps) > 0 {
				a := g.app(t, "shop")
				driver := ""
				if a.Deployment != nil {
					driver = a.Deployment.Driver
				}
				found, err := g.engine().Resume(t.Context(), driver, "")
				require.NoError(t, err)
				for _, f := range found {
					require.NoError(t, f.Err, "killed at point %d", point)
				}
			}
		}
		require.Empty(t, g.w.data.wrong, "killed at point %d", point)
		names, err := os.ReadDir(g.w.data.dir)
		if err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
		if len(names) > 0 {
			require.Equal(t, "yes", g.w.data.read(t, "kept"), "killed at point %d: it ran without its data", point)
			g.runs(tbAt{t, "killed"}, "shop", &k1)
			a := g.app(t, "shop")
			require.NotEmpty(t, a.Services)
			require.NoDirExists(t, a.DataDir(a.Current))
		} else {
			require.True(t, killed)
			require.Empty(t, g.w.running, "killed at point %d", point)
		}
		if !killed {
			g.remove()
			require.Greater(t, point, 20)
			return
		}
		g.remove()
	}
}

// TestRestoreFails: what does not start is removed with the data that it was given, and data
// that is there already is never touched.
func TestRestoreFails(t *testing.T) {
	g := newDataRig(t)
	tr := g.newTree(t, k1)
	g.w.sick[k1.compose()] = true
	require.Error(t, g.restore(t, tr))
	require.NoError(t, g.call(modules.ArtifactRollback, tr))
	require.NoError(t, g.call(modules.ArtifactFailure, tr))
	require.NoError(t, g.call(modules.Cleanup, tr))
	names, err := os.ReadDir(g.w.data.dir)
	require.NoError(t, err)
	require.Empty(t, names)
	require.Empty(t, g.w.running)

	g.w.sick[k1.compose()] = false
	require.NoError(t, os.WriteFile(filepath.Join(g.w.data.dir, "mine"), nil, 0o644))
	tr = g.newTree(t, k1)
	require.ErrorContains(t, g.restore(t, tr), "is not empty, and nothing is overwritten")
	require.NoError(t, g.call(modules.ArtifactRollback, tr))
	require.NoError(t, g.call(modules.Cleanup, tr))
	require.FileExists(t, filepath.Join(g.w.data.dir, "mine"))
	require.NoError(t, os.Remove(filepath.Join(g.w.data.dir, "mine")))
	require.NoError(t, g.restore(t, g.newTree(t, k1)))
	g.runs(t, "shop", &k1)
	require.ErrorContains(t, g.engine().Restore(t.Context(), "shop", nil), "is not loaded for the first time")
}

// TestRestoredPlaces: data goes only to what the release says is its own.
func TestRestoredPlaces(t *testing.T) {
	for says, place := range map[string]appdata.Place{
		"the manifests have no volume other":           {Volume: "other"},
		"which data.directories of shop does not name": {Dir: "/etc"},
	} {
		g := newDataRig(t)
		tr := g.newTree(t, k1)
		require.NoError(t, g.call(modules.Download, tr))
		require.NoError(t, g.engine().Restore(t.Context(), "shop", func(a *store.App) error {
			return appdata.Put(a, []appdata.Place{place}, func(dir string) error { return os.Mkdir(filepath.Join(dir, "0"), 0o755) })
		}))
		require.ErrorContains(t, g.call(modules.ArtifactInstall, tr), says)
	}
}

// TestBackupStopsAndStarts: an application is stopped while its data is copied, and goes on
// if that is interrupted.
func TestBackupStopsAndStarts(t *testing.T) {
	g := newDataRig(t)
	c := newClient(g, true)
	require.NoError(t, installCommit(c, g.newTree(t, k1)))
	copied := t.TempDir()
	back := func() error {
		return g.engine().Backup(t.Context(), []string{"shop"}, func(i *Installed) error {
			places, err := i.CopyData(t.Context(), copied)
			require.Equal(t, []appdata.Place{{Volume: "db"}}, places)
			return err
		})
	}
	require.NoError(t, back())
	require.FileExists(t, filepath.Join(copied, "0", "form"))
	g.runs(t, "shop", &k1)
	require.False(t, g.app(t, "shop").Copying)

	func() {
		dead := false
		end := durable.Inject(func(name string) error {
			if dead = dead || name == "called."+submodules.VerbStop; dead {
				panic(errKilled)
			}
			return nil
		})
		defer end()
		defer func() { require.Equal(t, errKilled, recover()) }()
		_ = back()
	}()
	require.True(t, g.app(t, "shop").Copying)
	g.w.powerCut()
	g.boot++
	_, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	g.runs(t, "shop", &k1)
	require.False(t, g.app(t, "shop").Copying)
}
