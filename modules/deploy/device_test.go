package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	deltas "github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// rig is a device for tests in this process: a store on disk, a world, and
// what a Mender client would remember.
type rig struct {
	t    testing.TB
	dir  string
	w    *world
	keep int
	boot int
	// installed is the artifact name in the client's provides.
	installed   string
	trees       int
	patience    time.Duration
	now         func() time.Time
	refuseOlder bool
	with        func(*Engine) // changes each engine
	hooks       *fakeHooks    // nil: there are none
	staged      []release
	shelf       *shelf // has the images of releases that are apart; nil until there is one
}

// tb lets a rig serve both testing.T and rapid.T.
type tb interface {
	require.TestingT
	Helper()
}

func newRig(t testing.TB) *rig {
	t.Helper()
	dir := t.TempDir()
	// Thousands of syncs: keep them in memory where the machine lets us.
	if d, err := os.MkdirTemp("/dev/shm", "mender-app-test-"); err == nil {
		dir = d
		t.Cleanup(func() { _ = os.RemoveAll(d) })
	}
	return &rig{t: t, dir: dir, w: newWorld(), keep: 1, now: jumpingClock()}
}

// jumpingClock is a clock that nothing can be built on: from one reading to the
// next it jumps by years, forth and back, between 1970 and 2050.
func jumpingClock() func() time.Time {
	var readings int64
	return func() time.Time {
		readings++
		const years = 80 * 365 * 24 * 3600
		return time.Unix(readings*987_654_321%years, readings)
	}
}

// remove frees what the rig takes, before the test ends.
func (g *rig) remove() { _ = os.RemoveAll(g.dir) }

// release is an artifact of the rig.
type release struct {
	app, name string
	images    []string // their content; the URL is the first word's
	also      []string // "name content": a further name of one of them
	sick      bool
	reboot    bool // asks for a restart of the machine
	worn      bool // and gets sick by it
	version   string
	env       map[string]string
	typ       string // of its components; "" is image
	over      string // the component that the one of the same first word is a delta over
	policy    string // app.toml
	apart     bool   // its images are not in the artifact, but on the shelf
}

func (r release) compose() string { return "compose of " + r.name }

// digestOf is the digest of a component. The payload has it as "image CONTENT",
// so that this is also the SHA-256 of the file.
func digestOf(app, content string) digest.Digest {
	return digest.Of([]byte("image " + content))
}

func (r release) digests() string {
	var out []string
	for _, content := range r.images {
		out = append(out, string(digestOf(r.app, content)))
	}
	for _, s := range r.also {
		_, content, _ := strings.Cut(s, " ")
		out = append(out, string(digestOf(r.app, content)))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (r release) meta() *artifact.Metadata {
	m := &artifact.Metadata{
		Version: artifact.VersionCurrent, ApplicationName: r.app, Orchestrator: "fake", Platform: "linux/amd64", Reboot: r.reboot,
		ApplicationVersion: r.version, Env: r.env,
	}
	if r.policy != "" {
		p, err := policy.ParseTOML([]byte(r.policy), r.app)
		if err != nil {
			panic(err)
		}
		if m.Policy, err = p.Encode(); err != nil {
			panic(err)
		}
	}
	for _, content := range r.images {
		d := digestOf(r.app, content)
		m.Images = append(m.Images, d.Hex())
		m.Components = append(m.Components, artifact.Component{
			URL: strings.Fields(content)[0] + ":1", Type: artifact.ComponentImage, Digest: d, Platform: "linux/amd64",
			ConfigSize: 10, Format: artifact.FormatFull, PayloadBytes: int64(len("image " + content)),
			Layers: []artifact.Layer{{DiffID: d, Size: 10, Encoding: artifact.EncodingVerbatim, Bytes: 10}},
		})
		c := &m.Components[len(m.Components)-1]
		if old := r.base(content); old != "" && r.typ == "" {
			m.Requires = []string{artifact.FeatureDelta}
			c.Format, c.PayloadBytes = artifact.FormatDelta, int64(len(fileDelta(old, content)))
			c.Bases = []artifact.Base{{URL: c.URL, Digest: digestOf("", old)}}
			c.Layers[0].Encoding = artifact.EncodingDelta
		}
		if r.typ != "" {
			c.Type, c.Size, c.ConfigSize, c.Layers = r.typ, c.PayloadBytes, 0, nil
			if m.Requires == nil {
				m.Requires = []string{artifact.FeatureFiles}
			}
			if old := r.base(content); old != "" {
				m.Requires = []string{artifact.FeatureDelta, artifact.FeatureFiles}
				c.Format, c.PayloadBytes = artifact.FormatDelta, int64(len(fileDelta(old, content)))
				c.Bases = []artifact.Base{{URL: c.URL, Digest: digestOf("", old), Size: int64(len("image " + old))}}
			}
		}
	}
	for _, s := range r.also {
		name, content, _ := strings.Cut(s, " ")
		c := m.Components[slices.Index(r.images, content)]
		c.URL = name + ":1"
		m.Components = append(m.Components, c)
	}
	slices.Sort(m.Images)
	if m.Policy != nil {
		m.Requires = append(m.Requires, artifact.FeaturePolicy)
	}
	return m
}

// base is the content that the delta of content is over; "" if it is not a delta.
func (r release) base(content string) string {
	if word, _, _ := strings.Cut(r.over, " "); r.over == "" || word != strings.Fields(content)[0] {
		return ""
	}
	return r.over
}

// fileDelta is the delta that makes one component's file of another one.
func fileDelta(old, next string) string {
	blob := func(text string) deltas.Image {
		text = "image " + text
		return deltas.Image{Name: "x", Objects: []deltas.Object{{
			Digest: digest.Of([]byte(text)), Size: int64(len(text)), Kind: deltas.Blob,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
		}}}
	}
	var b bytes.Buffer
	if _, err := encoder.Encode(context.Background(), &b, []deltas.Image{blob(old)}, blob(next), encoder.Options{}); err != nil {
		panic(err)
	}
	return b.String()
}

// payload makes the two files of the artifact.
func (r release) payload(t tb) map[string][]byte {
	var images, manifests bytes.Buffer
	w := artifact.NewImagesWriter(&images)
	for i, c := range r.meta().Components[:len(r.images)] {
		content, kind, current := "image "+r.images[i], artifact.KindFull, c.Digest
		if old := r.base(r.images[i]); old != "" {
			content, kind, current = fileDelta(old, r.images[i]), artifact.KindDelta, digestOf("", old)
		}
		require.NoError(t, w.Add(artifact.ImageInfo{
			Digest: c.Digest, URLNew: c.URL, URLCurrent: c.URL, SumNew: c.Digest, SumCurrent: current,
			Kind: kind, Size: int64(len(content)),
		}, int64(len(content)), strings.NewReader(content)))
	}
	require.NoError(t, w.Close())
	_, err := artifact.WriteManifests(&manifests, fstest.MapFS{"compose.yaml": {Data: []byte(r.compose())}})
	require.NoError(t, err)
	return map[string][]byte{artifact.ImagesPayload: images.Bytes(), artifact.ManifestsPayload: manifests.Bytes()}
}

// tree is what the client gives to the calls about one artifact.
type tree struct {
	*modules.Tree
	release release
	payload map[string][]byte
}

func (g *rig) newTree(t tb, r release) *tree {
	if r.apart {
		return g.fromShelf(t, r)
	}
	g.trees++
	dir := filepath.Join(g.dir, "trees", fmt.Sprint(g.trees))
	meta, err := r.meta().Encode()
	require.NoError(t, err)
	for name, content := range map[string]string{
		"header/artifact_name": r.name, "header/meta-data": string(meta),
		"current_artifact_name": g.installed + "\n", "tmp/x": "",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	tr, err := modules.OpenTree(dir)
	require.NoError(t, err)
	g.w.sick[r.compose()] = r.sick
	return &tree{Tree: tr, release: r, payload: r.payload(t)}
}

// streams gives a payload from memory.
type streams struct {
	names   []string
	payload map[string][]byte
}

func (tr *tree) streams() modules.Streams {
	names := []string{artifact.ImagesPayload, artifact.ManifestsPayload}
	if tr.payload[artifact.ImagesPayload] == nil { // its images are elsewhere
		names = names[1:]
	}
	return &streams{names: names, payload: tr.payload}
}

func (s *streams) Next() (*modules.Stream, error) {
	if len(s.names) == 0 {
		return nil, io.EOF
	}
	name := s.names[0]
	s.names = s.names[1:]
	return &modules.Stream{Name: name, ReadCloser: io.NopCloser(bytes.NewReader(s.payload[name]))}, nil
}

func (g *rig) engine() *Engine {
	e := &Engine{
		Store: store.At(filepath.Join(g.dir, "store")),
		Find: func(name string) (submodules.Client, error) {
			if name != "fake" {
				return submodules.Client{}, errors.New("no such sub-module")
			}
			return play(g.w), nil
		},
		Log: slog.New(slog.DiscardHandler), Keep: g.keep, BootID: fmt.Sprint("boot-", g.boot), Caller: journal.Caller{Driver: "mender"},
		Timeouts: Timeouts{Patience: g.patience}, Now: g.now, RefuseOlder: g.refuseOlder,
	}
	if g.hooks != nil {
		e.Hooks = g.hooks
	}
	if g.staged != nil {
		e.Staged = &stagedReleases{g, g.staged}
	}
	if g.shelf != nil {
		e.Content = g.shelf
	}
	if g.with != nil {
		g.with(e)
	}
	return e
}

// call makes one call of the module in a "process" of its own.
func (g *rig) call(s modules.State, tr *tree) error {
	e := g.engine()
	if g.hooks != nil {
		g.hooks.state = s
	}
	if s == modules.Download {
		release, err := e.lock(context.Background(), "test")
		if err != nil {
			return err
		}
		defer release()
		return e.download(context.Background(), tr.Tree, tr.streams())
	}
	return e.Handle(context.Background(), s, tr.Tree)
}

var errKilled = errors.New("killed")

// killedCall makes a call that is killed at the n-th point it passes (from 1);
// it returns errKilled, or what the call returned if it passed fewer.
func (g *rig) killedCall(s modules.State, tr *tree, n int) (points int, err error) {
	dead := false
	restore := durable.Inject(func(string) error {
		if points++; dead || points == n {
			dead = true
			panic(errKilled)
		}
		return nil
	})
	defer restore()
	defer func() {
		if p := recover(); p != nil {
			if p != errKilled {
				panic(p)
			}
			err = errKilled
		}
	}()
	return points, g.call(s, tr)
}

// app reads the application as it is on disk.
func (g *rig) app(t tb, name string) *store.App {
	a, err := store.At(filepath.Join(g.dir, "store")).App(name)
	if errors.Is(err, store.ErrNoApp) {
		return nil
	}
	require.NoError(t, err)
	return a
}

// runs asserts that a release runs, whole, and nothing of any other is left
// where it should not be.
func (g *rig) runs(t tb, app string, want *release) {
	t.Helper()
	run, up := g.w.running[app]
	a := g.app(t, app)
	if want == nil {
		require.False(t, up, "nothing should run, and %+v does", run)
		if a != nil {
			require.Empty(t, a.Current)
			require.Empty(t, a.Pointed())
		}
		return
	}
	require.True(t, up, "nothing runs")
	require.False(t, run.mixed, "a mix runs")
	require.False(t, run.stopped, "it is stopped")
	require.Equal(t, want.compose(), run.compose)
	require.Equal(t, want.digests(), run.digests)
	for _, d := range strings.Fields(run.digests) {
		require.NotEqual(t, "hollow", g.w.content[digest.Digest(d)], "a component that runs is hollow")
	}
	require.NotNil(t, a)
	g.w.data.is(t, want)
	if g.w.plain {
		g.plainRuns(t, want)
	}
	link, err := os.ReadFile(filepath.Join(a.ManifestsDir(), "compose.yaml"))
	require.NoError(t, err)
	require.Equal(t, want.compose(), string(link))
}

// clean asserts that exactly the current and the kept releases, and their
// components, are there.
func (g *rig) clean(t tb, app string) {
	t.Helper()
	a := g.app(t, app)
	if a == nil {
		require.Empty(t, g.w.loaded(app))
		return
	}
	require.Nil(t, a.Deployment)
	if g.shelf != nil && a.Current != "" && !a.HasFailed(a.Current) {
		require.NoDirExists(t, g.shelf.dir, "what was fetched is left")
	}
	keep := g.keep
	if a.HasFailed(a.Current) {
		keep++ // the way back
	}
	require.LessOrEqual(t, len(a.Kept), keep)
	if g.w.plain {
		g.plainClean(t, a)
		return
	}
	want := map[string]bool{}
	for _, id := range append(slices.Clone(a.Kept), a.Current) {
		if id == "" {
			continue
		}
		want[id] = true
	}
	have, err := a.Releases()
	require.NoError(t, err)
	digests := map[digest.Digest]bool{}
	for _, id := range have {
		require.True(t, want[id], "release %s is left over", id)
		r, err := a.Release(id)
		require.NoError(t, err)
		require.True(t, r.Complete)
		require.NoDirExists(t, a.DataDir(id)+"-back")
		if id == a.Current {
			require.NoDirExists(t, a.DataDir(id))
		}
		for _, c := range r.Components {
			digests[c.Digest] = true
			require.Contains(t, []string{"whole", "unsynced"}, g.w.content[c.Digest], "component of kept release %s", id)
		}
	}
	require.Len(t, have, len(want))
	require.Len(t, g.w.loaded(app), len(digests), "components left over")
	g.named(t)
}

// named asserts that the engine's names are those of releases that are there.
func (g *rig) named(t tb) {
	t.Helper()
	left := maps.Clone(g.w.tags)
	names, err := g.engine().Store.Apps()
	require.NoError(t, err)
	for _, name := range names {
		a := g.app(t, name)
		ids, err := a.Releases()
		require.NoError(t, err)
		for _, id := range ids {
			r, err := a.Release(id)
			if errors.Is(err, store.ErrNoRelease) && a.Deployment != nil && a.Deployment.To == id {
				continue // killed between the release's directory and its record
			}
			require.NoError(t, err)
			for _, c := range r.Components {
				if left[c.URL] == c.Digest {
					delete(left, c.URL)
				}
			}
		}
	}
	require.Empty(t, left, "names left over")
}

func writeFile(t tb, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// injectNames calls f with the name of each point that is passed.
func injectNames(f func(name string)) (restore func()) {
	return durable.Inject(func(name string) error { f(name); return nil })
}
