package deploy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

func TestCheckPlatform(t *testing.T) {
	for _, c := range []struct {
		machine, artifact string
		ok                bool
	}{
		{"armv7l", "linux/arm/v7", true}, {"armv7l", "linux/arm/v6", true}, {"armv6l", "linux/arm/v7", false},
		{"armv7l", "linux/arm64", false}, {"aarch64", "linux/arm64/v8", true}, {"aarch64", "linux/arm/v7", true},
		{"x86_64", "linux/amd64", true}, {"x86_64", "linux/arm64", false},
		{"armv7l", "arm32v7", true}, {"armv7l", "arm32v6", true}, {"armv6l", "arm32v7", false}, {"armv7l", "armhf", true},
		{"aarch64", "arm64v8", true}, {"aarch64", "linux/arm64", true}, {"armv7l", "arm64v8", false},
	} {
		platforms := platformsOf(c.machine, "")
		err := checkMachine(platforms, c.artifact)
		if c.ok {
			require.NoError(t, err, "%v", c)
		} else {
			require.Error(t, err, "%v", c)
			want, perr := image.ParsePlatform(c.artifact)
			require.NoError(t, perr)
			have := platforms[0].String()
			require.EqualError(t, err, "the artifact is for "+want.String()+" and this machine runs "+have+": build it with app-gen --platform "+have)
		}
	}
}

// TestRefusedBeforeAnythingIsLoaded: what the metadata says does not fit.
func TestRefusedBeforeAnythingIsLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(g *rig, m *artifact.Metadata)
		says    string
	}{
		"orchestrator": {func(_ *rig, m *artifact.Metadata) { m.Orchestrator = "nomad" }, "no such sub-module"},
		"space": {func(_ *rig, m *artifact.Metadata) {
			m.Sizes = &artifact.Sizes{ImagesPayload: 1, ManifestsPayload: 1, Temp: 1 << 55}
		}, "not enough space"},
		"delta without the feature": {func(g *rig, m *artifact.Metadata) {
			g.w.features = []string{submodules.FeatureStage}
			delta(m)
		}, "the delta needs web:0"},
		"delta without its base": {func(_ *rig, m *artifact.Metadata) { delta(m) }, "does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			c1 := newClient(g, true)
			require.NoError(t, c1.install(g.newTree(t, v1)))
			require.NoError(t, c1.commit())
			tr := g.newTree(t, v2)
			m := v2.meta()
			c.prepare(g, m)
			raw, err := m.Encode()
			require.NoError(t, err)
			writeFile(t, tr.Dir()+"/header/meta-data", string(raw))
			g.w.calls = nil
			err = c1.install(tr)
			require.ErrorIs(t, err, ErrUnfit)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
			for _, call := range g.w.calls {
				require.Regexp(t, "^(LIST|VERIFY)", call, "nothing but questions")
			}
			g.runs(t, "shop", &v1)
			g.clean(t, "shop")
			require.Contains(t, g.history(t, "shop"), "shop-2 refused")
		})
	}
}

// delta makes the first component one that builds on an image of elsewhere.
func delta(m *artifact.Metadata) {
	c := &m.Components[0]
	c.Format = artifact.FormatDelta
	base := digestOf("", "an image of elsewhere")
	c.Bases = []artifact.Base{{URL: "web:0", Digest: base}}
	m.Requires = []string{artifact.FeatureDelta}
	m.Images = append(m.Images, base.Hex())
	for i := range m.Images { // sorted
		for j := range m.Images[:i] {
			if m.Images[i] < m.Images[j] {
				m.Images[i], m.Images[j] = m.Images[j], m.Images[i]
			}
		}
	}
}

// TestBadPayloads: the metadata fits and the payload does not.
func TestBadPayloads(t *testing.T) {
	other := release{app: "shop", name: "shop-9", images: []string{"web nine"}}
	for name, c := range map[string]struct {
		change func(tr *tree) modules.Streams
		says   string
	}{
		"nothing": {func(*tree) modules.Streams { return &streams{} }, "no manifests.tar.gz"},
		"no images": {func(tr *tree) modules.Streams {
			return &streams{names: []string{artifact.ManifestsPayload}, payload: tr.payload}
		}, "the metadata announces image"},
		"no manifests": {func(tr *tree) modules.Streams {
			return &streams{names: []string{artifact.ImagesPayload}, payload: tr.payload}
		}, "no manifests.tar.gz"},
		"twice": {func(tr *tree) modules.Streams {
			return &streams{names: []string{artifact.ManifestsPayload, artifact.ManifestsPayload}, payload: tr.payload}
		}, "unexpected file"},
		"another file": {func(tr *tree) modules.Streams {
			return &streams{names: []string{"evil"}, payload: tr.payload}
		}, `unexpected file "evil"`},
		"another image": {func(tr *tree) modules.Streams {
			return &streams{names: []string{artifact.ImagesPayload}, payload: other.payload(t)}
		}, "not announced"},
		"cut off": {func(tr *tree) modules.Streams {
			return &streams{names: []string{artifact.ImagesPayload}, payload: map[string][]byte{artifact.ImagesPayload: tr.payload[artifact.ImagesPayload][:60]}}
		}, ""},
		"ends in an error": {func(tr *tree) modules.Streams { return failing{} }, "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			cl := newClient(g, true)
			require.NoError(t, cl.install(g.newTree(t, v1)))
			require.NoError(t, cl.commit())
			tr := g.newTree(t, v2)
			e := g.engine()
			release, err := e.lock(t.Context(), "test")
			require.NoError(t, err)
			err = e.download(t.Context(), tr.Tree, c.change(tr))
			release()
			require.ErrorContains(t, err, c.says)
			require.Error(t, g.call(modules.ArtifactInstall, tr), "what did not arrive is not installed")
			require.NoError(t, g.call(modules.Cleanup, tr))
			g.runs(t, "shop", &v1)
			g.clean(t, "shop")
			ended := " refused"
			if name == "ends in an error" {
				ended = " rolled-back" // it may arrive the next time
			}
			require.Equal(t, []string{"shop-1 installed", "shop-2" + ended}, g.history(t, "shop"))
		})
	}
}

// failing is a payload whose file cannot be read to its end.
type failing struct{}

func (failing) Next() (*modules.Stream, error) {
	r := io.MultiReader(bytes.NewReader([]byte{0x1f, 0x8b}), errReader{})
	return &modules.Stream{Name: artifact.ImagesPayload, ReadCloser: io.NopCloser(r)}, nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, unix.EIO }

// TestOldSubmodule: one that speaks protocol 1.0 gets files and no options.
func TestOldSubmodule(t *testing.T) {
	g := newRig(t)
	g.w.features = nil
	o := &oldModule{world: g.w}
	e := g.engine()
	e.Find = func(string) (submodules.Client, error) { return play(o), nil }
	for _, s := range []modules.State{modules.ArtifactInstall, modules.ArtifactCommit, modules.Cleanup} {
		tr := g.newTree(t, v1)
		if s == modules.ArtifactInstall {
			require.NoError(t, e.download(t.Context(), tr.Tree, tr.streams()))
		}
		require.NoError(t, e.Handle(t.Context(), s, tr.Tree), s)
	}
	require.Equal(t, 2, o.loaded)
	g.runs(t, "shop", &v1)
}

type oldModule struct {
	*world
	loaded int
}

func (o *oldModule) Load(ctx context.Context, r submodules.LoadRequest) error {
	if r.Path == "-" || r.Stage || r.Delta || r.DeepDelta || r.Distrust {
		return submodules.ErrUsage
	}
	f, err := os.Open(r.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	r.Stdin, r.Stage = f, true
	o.loaded++
	return o.world.Load(ctx, r)
}

// TestStoreThatCannotBeMade: the download fails, and undoing nothing does not.
func TestStoreThatCannotBeMade(t *testing.T) {
	g := newRig(t)
	tr := g.newTree(t, v1)
	defer durable.Inject(func(string) error { return unix.EROFS })()
	require.Error(t, g.call(modules.Download, tr))
	require.Error(t, g.call(modules.ArtifactInstall, tr))
	require.NoError(t, g.call(modules.ArtifactRollback, tr))
	require.NoError(t, g.call(modules.ArtifactFailure, tr))
	require.NoError(t, g.call(modules.Cleanup, tr))
}

// TestUnreadableCurrentRelease: the next release gets in all the same.
func TestUnreadableCurrentRelease(t *testing.T) {
	g := newRig(t)
	c := newClient(g, true)
	require.NoError(t, c.install(g.newTree(t, v1)))
	require.NoError(t, c.commit())
	writeFile(t, g.app(t, "shop").Dir()+"/releases/1-shop-1/release.json", "")
	require.NoError(t, c.install(g.newTree(t, v2)))
	require.NoError(t, c.commit())
	g.runs(t, "shop", &v2)
}

// TestDataRoot: the sub-module knows best where the engine keeps images.
func TestDataRoot(t *testing.T) {
	g := newRig(t)
	e := g.engine()
	e.DataRoot = "/guessed"
	info, err := g.w.Describe(t.Context())
	require.NoError(t, err)
	about := &target{e: e, app: "shop", r: (&header{Meta: v1.meta()}).Release(), sub: play(g.w), info: info}
	require.Empty(t, about.dataRoot(t.Context()), "it is elsewhere")
	g.w.storage = []string{"/told", "/more"}
	require.Equal(t, "/told", about.dataRoot(t.Context()))
	require.Equal(t, "/guessed", (&target{e: e, app: "shop", r: about.r, sub: play(g.w)}).dataRoot(t.Context()), "a sub-module of before")
	g.w.storage = []string{"relative"}
	require.Empty(t, about.dataRoot(t.Context()))
}

// The metadata of the shell reference has no components; it names the images.
func TestImageThatTheMetadataDoesNotName(t *testing.T) {
	g := newRig(t)
	for _, named := range []bool{true, false} {
		m := v1.meta()
		m.Version, m.Components = artifact.VersionReference, nil
		if !named {
			m.Images = m.Images[1:]
		}
		raw, err := m.Encode()
		require.NoError(t, err)
		tr := g.newTree(t, v1)
		writeFile(t, tr.Dir()+"/header/meta-data", string(raw))
		err = g.call(modules.Download, tr)
		require.NoError(t, errors.Join(g.call(modules.Cleanup, tr)))
		if named {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, artifact.ErrPayload)
		require.ErrorContains(t, err, "not among the images that the metadata names")
		require.Equal(t, "shop-1 refused", g.history(t, "shop")[1])
	}
}
