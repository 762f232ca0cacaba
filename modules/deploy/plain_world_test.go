package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/filedelta"
	"github.com/mender-app/mender-app/modules/imagedelta"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// A plain world is one whose sub-module has no features: a component is a file
// under its URL, and LOAD overwrites it in place. world.tags says what is there.

const garbage = "sha256:half-written"

// newPlainRig is a rig whose sub-module has no features.
func newPlainRig(t testing.TB) *rig {
	g := newRig(t)
	g.w.plain, g.w.features, g.w.texts = true, nil, map[digest.Digest]string{}
	old := sysSync
	sysSync = g.w.synced
	t.Cleanup(func() { sysSync = old })
	inThisProcess(t)
	return g
}

// inThisProcess applies deltas without another process: that would be the test.
func inThisProcess(t testing.TB) {
	file, image := runFileDelta, runImageDelta
	runFileDelta, runImageDelta = filedelta.Apply, applyImageDelta
	t.Cleanup(func() { runFileDelta, runImageDelta = file, image })
}

// applyImageDelta stands for imagedelta.Run: an image of this world is no archive.
func applyImageDelta(ctx context.Context, q imagedelta.Request) error {
	old, err := os.Open(q.Archives[0])
	if err != nil {
		return err
	}
	defer old.Close()
	patch, err := os.Open(q.Delta)
	if err != nil {
		return err
	}
	defer patch.Close()
	next, err := os.Create(q.New)
	if err != nil {
		return err
	}
	defer next.Close()
	is, err := sumOf(q.Archives[0])
	if err != nil {
		return err
	}
	if is != q.Component.Bases[0].Digest {
		return submodules.Mark(fmt.Errorf("the old image is %s", is), submodules.ErrBase)
	}
	if err := filedelta.Apply(ctx, filedelta.Request{Old: old, Delta: patch, New: next, Digest: is, Size: -1, Max: q.MaxFile}); err != nil {
		return submodules.Mark(err, submodules.ErrContent)
	}
	if is, err = sumOf(q.New); err == nil && is != q.Component.Digest {
		err = submodules.Mark(fmt.Errorf("it makes %s", is), submodules.ErrContent)
	}
	return err
}

func (w *world) synced() {
	for d, c := range w.content {
		if c == "unsynced" {
			w.content[d] = "whole"
		}
	}
}

// put changes what is under a URL. What runs from it is a mix from then on.
func (w *world) put(url string, d digest.Digest) {
	before := w.tags[url]
	w.tags[url] = d
	if before == d {
		return
	}
	for app, run := range w.running {
		if before != "" && strings.Contains(run.digests, before.String()) {
			run.mixed = true
			w.running[app] = run
		}
	}
}

func (w *world) plainLoad(r submodules.LoadRequest) error {
	data, err := os.ReadFile(r.Path)
	if err != nil {
		return err
	}
	text, ok := strings.CutPrefix(string(data), "image ")
	if !ok {
		return errors.New("not an image")
	}
	w.put(r.URL, garbage)
	if err := durable.Point("inside.LOAD"); err != nil {
		return err
	}
	d := digestOf(r.App, text)
	w.texts[d], w.content[d] = text, "unsynced"
	w.put(r.URL, d)
	return nil
}

func (w *world) Save(_ context.Context, r submodules.SaveRequest) error {
	if err := w.enter("SAVE", r.Request, r.URL); err != nil {
		return err
	}
	d := w.tags[r.URL]
	if d == "" {
		return submodules.Mark(fmt.Errorf("no %s", r.URL), submodules.ErrNotFound)
	}
	text := "image " + w.texts[d]
	if w.content[d] == "hollow" {
		text = "hollow"
	}
	if err := os.WriteFile(r.Path, []byte(text[:1]), 0o644); err != nil {
		return err
	}
	if err := durable.Point("inside.SAVE"); err != nil {
		return err
	}
	return os.WriteFile(r.Path, []byte(text), 0o644)
}

func (w *world) plainDelete(r submodules.DeleteRequest) error {
	delete(w.tags, r.URL)
	return nil
}

// plainUp restarts everything in ROLLOUT. In ROLLBACK it takes the manifests
// only, so that what runs stays as mixed as it was.
func (w *world) plainUp(verb string, r submodules.Request) error {
	compose, err := os.ReadFile(filepath.Join(r.Dir, "compose.yaml"))
	if err != nil {
		return err
	}
	next := running{compose: string(compose), mixed: true}
	var digests []string
	for _, c := range r.Components {
		d := w.tags[c.URL]
		if d == "" || d == garbage || w.content[d] == "hollow" {
			return fmt.Errorf("%s: %s does not start", verb, c.URL)
		}
		digests = append(digests, d.String())
	}
	slices.Sort(digests)
	next.digests = strings.Join(digests, " ")
	if verb == "ROLLBACK" {
		next.mixed = w.running[r.App].mixed
		w.running[r.App] = next
		return nil
	}
	w.running[r.App] = next
	if err := durable.Point("inside." + verb); err != nil {
		return err
	}
	if w.sick[next.compose] {
		return submodules.Mark(errors.New("it does not get healthy"), submodules.ErrUnhealthy)
	}
	next.mixed = false
	w.running[r.App] = next
	return nil
}

// plainRuns asserts that what runs is in place.
func (g *rig) plainRuns(t tb, want *release) {
	t.Helper()
	for _, c := range want.meta().Components {
		require.Equal(t, c.Digest, g.w.tags[c.URL], "what is at %s", c.URL)
	}
}

// plainClean asserts that each component of each release is in place or copied,
// and that the current release has no copies.
func (g *rig) plainClean(t tb, a *store.App) {
	t.Helper()
	ids, err := a.Releases()
	require.NoError(t, err)
	needed := map[string]bool{}
	for _, id := range ids {
		r, err := a.Release(id)
		require.NoError(t, err)
		for _, c := range r.Components {
			needed[c.URL] = true
			copied, ok := a.Saved(id, c.URL)
			if id == a.Current {
				require.False(t, ok, "the current release has a copy of %s", c.URL)
			}
			if g.w.tags[c.URL] == c.Digest {
				continue
			}
			require.True(t, ok, "release %s has lost %s", id, c.URL)
			data, err := os.ReadFile(copied)
			require.NoError(t, err)
			require.Equal(t, c.Digest, digestOf("", strings.TrimPrefix(string(data), "image ")))
		}
	}
	for url := range g.w.tags {
		require.True(t, needed[url], "%s is left over", url)
	}
	left, err := filepath.Glob(filepath.Join(a.Dir(), "releases", "*", "components", durable.TempPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// plainScenarios are those whose sub-module has no features.
var plainScenarios = []scenario{
	{name: "plain: first install", run: installCommit, what: v1, plain: true},
	{name: "plain: first install fails", run: installCommit, what: v3, plain: true},
	{name: "plain: update", first: &v1, run: installCommit, what: v2, plain: true},
	{name: "plain: update fails", first: &v1, run: installCommit, what: v3, plain: true},
	{name: "plain: failed release stays", first: &v1, run: installCommit, what: s3, plain: true},
	{name: "plain: update rolled back", first: &v1, run: installRollback, what: v2, plain: true},
	{name: "plain: update of files", first: &f1, run: installCommit, what: f2, plain: true},
	{name: "plain: update by delta", first: &f1, run: installCommit, what: d2, plain: true},
	{name: "plain: update by delta fails", first: &f1, run: installCommit, what: d3, plain: true},
	{name: "plain: update by delta rolled back", first: &f1, run: installRollback, what: d2, plain: true},
	{name: "plain: update of files rolled back", first: &f1, run: installRollback, what: f2, plain: true},
	{name: "plain: images by delta", first: &v1, run: installCommit, what: i2, plain: true},
	{name: "plain: images by delta fail", first: &v1, run: installCommit, what: i3, plain: true},
	{name: "plain: manifests only", first: &v1, run: installRollback, what: m1, plain: true},
}

// f1 and f2 are v1 and v2 with files in the place of images; d2 and d3 are v2 and
// v3 as deltas over f1; i2 and i3 are v2 and v3 as deltas over v1.
var (
	f1, f2 = asFiles(v1), asFiles(v2)
	d2, d3 = asDelta(asFiles(v2)), asDelta(asFiles(v3))
	i2, i3 = asDelta(v2), asDelta(v3)
)

func asDelta(r release) release {
	r.over = "web one"
	return r
}

func asFiles(r release) release {
	r.typ = "binary"
	return r
}

// m1 has v1's images and other manifests.
var m1 = release{app: "shop", name: "shop-m1", images: v1.images}

func TestPlainSubmoduleGoesBack(t *testing.T) {
	g := newPlainRig(t)
	g.keep = 2
	c := newClient(g, true)
	for _, r := range []release{v1, v2} {
		require.NoError(t, c.install(g.newTree(t, r)))
		g.runs(t, "shop", &r)
		require.NoError(t, c.commit())
		g.runs(t, "shop", &r)
		g.clean(t, "shop")
	}
	require.ErrorContains(t, c.install(g.newTree(t, v3)), "healthy")
	g.runs(t, "shop", &v2)
	g.clean(t, "shop")
	require.NoError(t, c.install(g.newTree(t, v4)))
	g.runs(t, "shop", &v4)
	require.NoError(t, c.rollback())
	g.runs(t, "shop", &v2)
	g.clean(t, "shop")

	// Days later, and forward again.
	for _, want := range []release{v1, v2, v1} {
		r, err := g.engine().GoBack(t.Context(), "shop", want.name)
		require.NoError(t, err)
		require.Equal(t, want.name, r.ArtifactName)
		g.runs(t, "shop", &want)
		g.clean(t, "shop")
	}
	require.NoError(t, c.install(g.newTree(t, v4)))
	require.NoError(t, c.commit())
	g.runs(t, "shop", &v4)
	g.clean(t, "shop")
}

// Where the machine was restarted between the download and the installation,
// what runs may be of either release: resume goes back.
func TestPlainResumeAfterARestart(t *testing.T) {
	g := newPlainRig(t)
	c := newClient(g, false)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	require.NoError(t, g.call(modules.Download, g.newTree(t, v2)))
	found, err := g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.True(t, found[0].Waiting, "in the same boot the client goes on")
	g.boot++
	found, err = g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.NoError(t, found[0].Err)
	require.False(t, found[0].Waiting)
	g.runs(t, "shop", &v1)
	g.clean(t, "shop")
}

// A copy that cannot be made refuses the update before anything changes.
func TestPlainCopyFails(t *testing.T) {
	g := newPlainRig(t)
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	g.w.fail["SAVE"], g.w.calls = 1, nil
	err := c.install(g.newTree(t, v2))
	require.ErrorIs(t, err, ErrUnfit)
	require.ErrorContains(t, err, "would overwrite web:1, which release 1-shop-1 needs")
	require.Equal(t, []string{"SAVE shop web:1"}, g.w.calls, "nothing is called after it")
	g.runs(t, "shop", &v1)
	g.clean(t, "shop")
	require.Equal(t, []string{"shop-1 installed", "shop-2 refused"}, g.history(t, "shop"))
}

// The copies count in the check of free space.
func TestPlainNoSpaceForCopies(t *testing.T) {
	g := newPlainRig(t)
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	m := v2.meta()
	e := g.engine()
	a := g.app(t, "shop")
	a.Deployment = &store.Deployment{ID: "2", ArtifactName: "shop-2", From: a.Current, To: "2-shop-2"}
	require.NoError(t, e.enter(a, journal.Downloading))
	require.NoError(t, a.PutRelease(&store.Release{ID: "2-shop-2", Orchestrator: "fake"}))
	tg, err := e.target(t.Context(), a, "2-shop-2")
	require.NoError(t, err)
	free, _, err := diskspace.Free(g.dir)
	require.NoError(t, err)
	m.Sizes = &artifact.Sizes{Temp: free}
	require.ErrorContains(t, tg.copyForDownload(t.Context(), m), "with copies of the components")
}
