package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// Another application has an image of what is staged.
var (
	e1    = release{app: "else", name: "else-1", images: []string{"web two"}}
	fresh = release{app: "fresh", name: "fresh-1", images: []string{"web two", "fresh one"}}
	sick1 = release{app: "fresh", name: "fresh-1", images: []string{"web two", "fresh one"}, sick: true}
)

// record is the path of the record that makes a release's artifact a staged one.
func (g *rig) record(r release) string {
	return g.engine().Store.Meta(filepath.Join("staged", digest.Of([]byte(r.name)).Hex()+".json"))
}

// stage stages the artifact of a release, as package staging does.
func (g *rig) stage(r release) error {
	if err := durable.MkdirAll(filepath.Dir(g.record(r)), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(g.record(r), []byte("{}"), 0o600)
}

// unstage is `mender-app unstage`.
func (g *rig) unstage(r release) error {
	if err := durable.Remove(g.record(r)); err != nil {
		return err
	}
	return g.engine().Unload(context.Background())
}

// preload is `mender-app stage --load`.
func (g *rig) preload(r release) error {
	if err := g.stage(r); err != nil {
		return err
	}
	return g.engine().Preload(context.Background(), g.preloadOf(r))
}

func (g *rig) preloadOf(r release) Preload {
	g.w.sick[r.compose()] = r.sick
	return Preload{
		StagedArtifact: &StagedArtifact{Meta: r.meta(), Payload: (&tree{payload: r.payload(g.t)}).streams(), Closer: io.NopCloser(nil)},
		Name:           r.name, Digest: digest.Of([]byte(r.name)), Room: func(int64) error { return nil },
	}
}

// dies does something in a process that is killed at the n-th point that it passes.
func dies(n int, work func() error) (killed bool, err error) {
	passed := 0
	restore := durable.Inject(func(string) error {
		if passed++; killed || passed == n {
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
	return killed, work()
}

// holdsStaged asserts that the engine has exactly what releases and loaded artifacts need, whole,
// and that nothing of staging is left half done.
func (g *rig) holdsStaged(t tb, staged ...release) {
	t.Helper()
	s := g.engine().Store
	require.False(t, s.AnyDoomed(), "a record is to be undone")
	records, err := s.LoadRecords()
	require.NoError(t, err)
	for _, app := range []string{"shop", "else", "fresh"} {
		want := map[digest.Digest]bool{}
		for _, r := range records {
			for _, c := range r.Release.Components {
				if r.Release.Application == app {
					want[c.Digest] = true
				}
			}
		}
		if a := g.app(t, app); a != nil {
			ids, err := a.Releases()
			require.NoError(t, err)
			for _, id := range ids {
				r, err := a.Release(id)
				require.NoError(t, err)
				for _, c := range r.Components {
					want[c.Digest] = true
				}
			}
		}
		for d := range want {
			require.Contains(t, []string{"whole", "unsynced"}, g.w.content[d], "of %s", app)
		}
		have := map[digest.Digest]bool{}
		for _, d := range g.w.loaded(app) {
			have[d] = true
		}
		require.Equal(t, want, have, "components of %s", app)
	}
	require.Len(t, records, len(staged))
}

// TestPreload: what is staged and loaded is retained whatever other applications and other
// releases do, is installed without reading content, and is gone when it is unstaged.
func TestPreload(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	require.NoError(t, installCommit(c, g.newTree(t, v1)))
	require.NoError(t, installCommit(c, g.newTree(t, e1)))
	require.NoError(t, g.preload(v2))
	g.runs(t, "shop", &v1)
	g.holdsStaged(t, v2)

	require.NoError(t, installCommit(c, g.newTree(t, v4)))
	require.NoError(t, installCommit(c, g.newTree(t, v1)))
	require.Error(t, installCommit(c, g.newTree(t, v3)))
	require.NoError(t, g.engine().Purge(t.Context(), "else", true, true))
	g.holdsStaged(t, v2)

	read := g.w.read
	require.NoError(t, installCommit(c, g.newTree(t, v2)))
	require.Equal(t, read, g.w.read, "content was loaded again")
	g.runs(t, "shop", &v2)
	require.NoError(t, g.unstage(v2))
	g.runs(t, "shop", &v2)
	g.holdsStaged(t)
}

// TestPreloadRefuses: without the feature stage LOAD would overwrite what runs. What
// cannot be loaded leaves nothing.
func TestPreloadRefuses(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	require.NoError(t, installCommit(c, g.newTree(t, v1)))
	features := g.w.features
	g.w.features = []string{submodules.FeatureVerify, submodules.FeatureComponents}
	err := g.preload(v2)
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "sub-module fake cannot load beside what runs: stage the artifact without --load")
	g.w.features = features

	require.NoError(t, g.stage(v2))
	p := g.preloadOf(v2)
	full := errors.New("no room")
	p.Room = func(int64) error { return full }
	require.ErrorIs(t, g.engine().Preload(t.Context(), p), full)

	g.w.fail["LOAD"] = 1
	require.ErrorContains(t, g.preload(v2), "LOAD was told to fail")
	g.w.fail["SYNC"] = 1
	require.ErrorContains(t, g.preload(v2), "SYNC was told to fail")
	g.holdsStaged(t)
	g.runs(t, "shop", &v1)

	// The engine is away: the record stays until it is back.
	require.NoError(t, g.preload(v2))
	g.w.fail["DELETE"] = 1
	require.ErrorContains(t, g.unstage(v2), "mender-app resume tries again")
	_, err = g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	g.holdsStaged(t)
}

// TestPreloadRecordDamaged: nothing is deleted while a record cannot be read; resume
// renames it, and the artifact can be loaded again.
func TestPreloadRecordDamaged(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	require.NoError(t, installCommit(c, g.newTree(t, v1)))
	require.NoError(t, g.preload(v2))
	path := g.record(v2)[:len(g.record(v2))-len(".json")] + ".loaded"
	require.NoError(t, os.WriteFile(path, []byte(`{"format":1,"release":{"application":"../x"}}`), 0o600))
	require.NoError(t, installCommit(c, g.newTree(t, v4)))
	require.NoError(t, installCommit(c, g.newTree(t, v1)))
	for _, d := range v2.meta().Components {
		require.NotEmpty(t, g.w.content[d.Digest])
	}
	_, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.FileExists(t, path+".corrupt")
	require.NoError(t, g.preload(v2))
	g.holdsStaged(t, v2)
}

// TestPreloadKilledAnywhere kills what has to do with staged artifacts that are loaded at
// each point that it passes, with and without a power cut. Afterwards resume leaves no
// half: the engine has exactly what releases and loaded artifacts need, whole; what is
// staged can be loaded, and what is loaded is installed without reading content.
func TestPreloadKilledAnywhere(t *testing.T) {
	first := func(g *rig, c *client) error { return g.preload(v2) }
	scenarios := []struct {
		name    string
		prepare func(g *rig, c *client) error
		work    func(g *rig, c *client) error
	}{
		{"load", nil, first},
		{"load again", first, first},
		{"unstage", first, func(g *rig, c *client) error { return g.unstage(v2) }},
		{"replace", first, func(g *rig, c *client) error {
			if err := errors.Join(g.stage(v4), durable.Remove(g.record(v2))); err != nil {
				return err
			}
			return g.preload(v4)
		}},
		{"install", first, func(g *rig, c *client) error { return installCommit(c, g.newTree(g.t, v2)) }},
		{"install another", first, func(g *rig, c *client) error { return installCommit(c, g.newTree(g.t, v4)) }},
		{"unstage what is installed", func(g *rig, c *client) error {
			if err := g.preload(v2); err != nil {
				return err
			}
			return installCommit(c, g.newTree(g.t, v2))
		}, func(g *rig, c *client) error { return g.unstage(v2) }},
		{"purge", first, func(g *rig, c *client) error { return g.engine().Purge(context.Background(), "shop", true, true) }},
		{"purge of another", first, func(g *rig, c *client) error { return g.engine().Purge(context.Background(), "else", true, true) }},
		{"load what was never installed", nil, func(g *rig, c *client) error { return g.preload(fresh) }},
		{"first installation fails", func(g *rig, c *client) error { return g.preload(sick1) }, func(g *rig, c *client) error {
			if err := installCommit(c, g.newTree(g.t, sick1)); err == nil {
				return errors.New("it does not fail")
			}
			return nil
		}},
	}
	begin, step := stride()
	kills := 0
	for _, s := range scenarios {
		for _, cut := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/cut=%v", s.name, cut), func(t *testing.T) {
				for point := begin; ; point += step {
					g := newRig(t)
					c := newClient(g, true)
					require.NoError(t, installCommit(c, g.newTree(t, v1)))
					require.NoError(t, installCommit(c, g.newTree(t, e1)))
					if s.prepare != nil {
						require.NoError(t, s.prepare(g, c))
					}
					killed, err := dies(point, func() error { return s.work(g, c) })
					at := tbAt{t, fmt.Sprintf("killed at point %d", point)}
					if !killed {
						require.NoError(at, err)
						g.remove()
						require.Greater(t, point, 3)
						return
					}
					kills++
					if cut {
						g.w.powerCut()
						g.boot++
					}
					g.settled(at)
				}
			})
		}
	}
	t.Logf("figures: staged artifacts that are loaded: %d kills", kills)
}

// settled asserts what must hold after a kill, and goes on.
func (g *rig) settled(t tbAt) {
	t.Helper()
	defer g.remove()
	found, err := g.engine().Resume(context.Background(), "mender", g.installed)
	require.NoError(t, err)
	for _, f := range found {
		require.NoError(t, f.Err)
	}
	var loaded []release
	for _, r := range []release{v2, v4, fresh} {
		if g.engine().Store.LoadRecord(digest.Of([]byte(r.name))) != nil {
			loaded = append(loaded, r)
		}
	}
	g.holdsStaged(t, loaded...)
	for _, app := range []string{"shop", "else"} { // old, new or purged, and never half of one
		a := g.app(t, app)
		if a == nil || a.Current == "" {
			g.runs(t, app, nil)
			continue
		}
		r, err := a.Release(a.Current)
		require.NoError(t, err)
		for _, want := range []release{v1, v2, v4, e1} {
			if want.name == r.ArtifactName {
				g.runs(t, app, &want)
			}
		}
	}
	require.NoError(t, g.preload(v2))
	read := g.w.read
	c := newClient(g, true)
	require.NoError(t, installCommit(c, g.newTree(t, v2)))
	require.Equal(t, read, g.w.read, "content was loaded again")
	g.runs(t, "shop", &v2)
	for _, r := range []release{v2, v4, fresh} {
		require.NoError(t, g.unstage(r))
	}
	g.holdsStaged(t)
}
