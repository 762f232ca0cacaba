package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// The files of a payload.
const (
	imagesFile    = "images.tar.gz"
	manifestsFile = "manifests.tar.gz"
)

// header is what a call knows of its artifact. The client has verified it.
type header struct {
	artifact string // its name
	meta     *artifact.Metadata
}

// readHeader reads the artifact's name and the metadata from the tree.
func (e *Engine) readHeader(tree *modules.Tree) (*header, error) {
	name, err := tree.ArtifactName()
	if err != nil {
		return nil, err
	}
	raw, err := tree.MetaData()
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fmt.Errorf("%w: the artifact has none; make it with app-gen", artifact.ErrMetadata)
	}
	meta, warnings, err := artifact.ParseMetadata(raw)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		e.Log.Warn(w)
	}
	if !store.ValidName(meta.ApplicationName) {
		return nil, fmt.Errorf("%w: application name %q", artifact.ErrMetadata, meta.ApplicationName)
	}
	return &header{name, meta}, nil
}

// download settles what earlier calls left, refuses what does not fit this
// device, and loads the payload beside what runs.
func (e *Engine) download(ctx context.Context, tree *modules.Tree, payload modules.Streams) error {
	h, err := e.readHeader(tree)
	if err != nil {
		return err
	}
	installed, err := tree.CurrentArtifactName()
	if err != nil {
		return err
	}
	if err := e.settle(ctx, installed, h.meta.ApplicationName); err != nil {
		return err
	}
	started := e.now()
	o, info, err := e.preflight(ctx, h)
	if err != nil {
		e.recordRefusal(h, started, err)
		return err
	}
	a, err := e.begin(ctx, h, o, info)
	if err != nil {
		return err
	}
	if err := e.receive(ctx, a, h, o, info, payload); err != nil {
		e.remember(a, err)
		return err
	}
	return e.on(ctx, a, EventReceived, h.artifact)
}

func (e *Engine) recordRefusal(h *header, started time.Time, cause error) {
	err := e.record(h.meta.ApplicationName, &store.Deployment{
		ID: "refused-" + started.Format(time.RFC3339Nano), ArtifactName: h.artifact,
		Driver: e.Driver, Started: started, Error: cause.Error(),
	}, store.StatusRefused)
	if err != nil {
		e.Log.Warn("the refusal is not in the history", "error", err)
	}
}

// settle ends what earlier calls left open, of any application: the client
// that begins a download knows of no other deployment any more. installed is
// what it takes for installed; incoming is the application that it installs
// now.
func (e *Engine) settle(ctx context.Context, installed, incoming string) error {
	names, err := e.Store.Apps()
	if err != nil {
		return err
	}
	for _, name := range names {
		if e.Store.Legacy(name) {
			continue
		}
		a, err := e.open(name)
		if err != nil {
			if name == incoming {
				return err
			}
			e.Log.Error("the application cannot be read", "app", name, "error", err)
			continue
		}
		if a.Deployment == nil {
			continue
		}
		if err := e.settleApp(ctx, a, installed); err != nil {
			if ctx.Err() != nil {
				return err
			}
			e.Log.Error("an interrupted deployment could not be undone", "app", name, "error", err)
			if name != incoming {
				continue // `mender-app resume` tries again
			}
			// What comes in now may be the repair.
			e.discardFailed(ctx, a)
			if err := e.end(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleApp ends one open deployment in the release that the client takes for
// installed.
func (e *Engine) settleApp(ctx context.Context, a *store.App, installed string) error {
	d := a.Deployment
	e.Log.Info("settling an interrupted deployment", "app", a.Name, "artifact", d.ArtifactName, "state", d.Phase)
	confirmed := phaseOf(a) == Cleaning || phaseOf(a) == Committed && installed != "" && installed == d.ArtifactName
	if !confirmed {
		if err := e.on(ctx, a, EventRollback, d.ArtifactName); err != nil {
			return err
		}
	}
	return e.on(ctx, a, EventCleanup, d.ArtifactName)
}

// begin records the deployment and its release before anything is loaded.
func (e *Engine) begin(ctx context.Context, h *header, o Orchestrator, info submodules.Info) (*store.App, error) {
	name := h.meta.ApplicationName
	if e.Store.Legacy(name) {
		if err := e.adopt(ctx, h, o, info); err != nil {
			return nil, err
		}
	}
	a, err := e.open(name)
	if errors.Is(err, store.ErrNoApp) {
		a, err = e.Store.Create(name)
	}
	if err != nil {
		return nil, err
	}
	id := a.NextID(h.artifact)
	a.Deployment = &store.Deployment{
		ID: id, ArtifactName: h.artifact, From: a.Current, To: id, Driver: e.Driver, Started: e.now(),
	}
	if err := e.enter(a, Downloading); err != nil {
		return nil, err
	}
	r := &store.Release{
		ID: id, ArtifactName: h.artifact, Version: h.meta.ApplicationVersion, Orchestrator: h.meta.Orchestrator,
		Platform: h.meta.Platform, Env: h.meta.Env, Created: e.now(),
	}
	for _, c := range h.meta.Components {
		r.Components = append(r.Components, componentOf(c))
	}
	return a, a.PutRelease(r)
}

func componentOf(c artifact.Component) store.Component {
	out := store.Component{Type: c.Type, URL: c.URL, Digest: c.Digest.String()}
	for _, l := range c.Layers {
		out.DiffIDs = append(out.DiffIDs, l.DiffID.String())
	}
	return out
}

// adopt takes over an application of the shell reference and gives its images
// a reference of their own, so that they are still there for a rollback.
func (e *Engine) adopt(ctx context.Context, h *header, o Orchestrator, info submodules.Info) error {
	name := h.meta.ApplicationName
	known := map[string]submodules.Component{}
	err := e.call(ctx, submodules.VerbList, callTimeout, func(ctx context.Context, tmp string) error {
		list, err := o.List(ctx, submodules.Request{App: name, Dir: filepath.Join(e.Store.Dir(), name, "manifests"), TempDir: tmp})
		for _, c := range list {
			known[c.URL] = c
		}
		return err
	})
	if err != nil {
		e.Log.Warn("the images of the adopted application are known by name only", "app", name, "error", err)
	}
	a, err := e.Store.Adopt(name, h.meta.Orchestrator, func(urls []string) (list []store.Component) {
		for _, url := range urls {
			c := known[url]
			list = append(list, store.Component{Type: artifact.ComponentImage, URL: url, Digest: c.Digest, DiffIDs: c.DiffIDs})
		}
		return list
	})
	if err != nil {
		return err
	}
	e.Log.Info("adopted an application of the shell app-update-module", "app", name)
	r, err := a.Release(store.AdoptedID)
	if err != nil {
		return err
	}
	for _, c := range r.Components {
		if c.Digest == "" || !info.Has(submodules.FeatureStage) || !info.Has(submodules.FeatureComponents) {
			continue
		}
		// It is present: nothing is read.
		err := e.call(ctx, submodules.VerbLoad, callTimeout, func(ctx context.Context, tmp string) error {
			req := request(a, r, tmp)
			req.URL, req.Path, req.Options = c.URL, os.DevNull, []string{submodules.OptionStage}
			req.Components = components([]store.Component{c})
			return o.Load(ctx, req)
		})
		if err != nil {
			e.Log.Warn("an image of the adopted application could not be marked as its own", "app", name, "component", c.URL, "error", err)
		}
	}
	return nil
}

// receive reads the payload: images are loaded, manifests unpacked. Nothing of
// it may be used before the client has checked the payload's checksums, which
// it does when the call has ended.
func (e *Engine) receive(ctx context.Context, a *store.App, h *header, o Orchestrator, info submodules.Info, payload modules.Streams) error {
	l := &loader{e: e, a: a, h: h, o: o, info: info, loaded: map[string]bool{}}
	r, err := a.Release(a.Deployment.To)
	if err != nil {
		return err
	}
	l.r = r
	var images, manifests bool
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		s, err := payload.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		err = func() error {
			defer s.Close()
			switch {
			case s.Name == imagesFile && !images:
				images = true
				return l.images(ctx, s)
			case s.Name == manifestsFile && !manifests:
				manifests = true
				return l.manifests(s)
			}
			return fmt.Errorf("%w: unexpected file %q", artifact.ErrPayload, s.Name)
		}()
		if err != nil {
			return err
		}
	}
	if !manifests {
		return fmt.Errorf("%w: no %s in it", artifact.ErrPayload, manifestsFile)
	}
	for _, c := range h.meta.Components {
		if !l.loaded[c.Digest.String()] {
			return fmt.Errorf("%w: image %s (%s) is announced and not there", artifact.ErrPayload, c.URL, c.Digest)
		}
	}
	return nil
}

type loader struct {
	e      *Engine
	a      *store.App
	h      *header
	r      *store.Release
	o      Orchestrator
	info   submodules.Info
	loaded map[string]bool // by digest
}

func (l *loader) manifests(r io.Reader) error {
	root, err := os.OpenRoot(l.a.ReleaseManifests(l.r.ID))
	if err != nil {
		return err
	}
	defer root.Close()
	var limits artifact.ManifestLimits
	if s := l.h.meta.Sizes; s != nil {
		limits.MaxBytes = s.ManifestsPayload
	}
	if err := artifact.ReadManifests(r, root, limits); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	return durable.Point("unpacked.manifests")
}

func (l *loader) images(ctx context.Context, r io.Reader) error {
	tmp, err := l.e.temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	room, err := spoolRoom(tmp, freeBytes)
	if err != nil {
		return err
	}
	o := artifact.ReadOptions{SpoolDir: tmp, MaxSpool: room}
	if s := l.h.meta.Sizes; s != nil {
		o.MaxBytes = s.ImagesPayload
	}
	return artifact.ReadImages(r, o, func(info artifact.ImageInfo, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		if err := l.image(ctx, info, content); err != nil {
			return fmt.Errorf("image %s: %w", info.URLNew, err)
		}
		return nil
	})
}

// image loads one image, under each of its names.
func (l *loader) image(ctx context.Context, info artifact.ImageInfo, content io.Reader) error {
	names, base, err := l.identify(info)
	if err != nil {
		return err
	}
	req := submodules.Request{CurrentURL: base, Path: "-", Stdin: content}
	if l.info.Has(submodules.FeatureStage) {
		req.Options = append(req.Options, submodules.OptionStage)
	}
	switch info.Kind {
	case artifact.KindFull:
	case artifact.KindDelta:
		if !l.info.Has(submodules.FeatureDelta) {
			return fmt.Errorf("sub-module %s cannot apply deltas: update it, or install a full artifact", l.h.meta.Orchestrator)
		}
		req.Options = append(req.Options, submodules.OptionDelta)
	case artifact.KindReferenceDeepDelta:
		req.Options = append(req.Options, submodules.OptionDeepDelta)
	case artifact.KindReferenceDelta:
		if !l.info.Has(submodules.FeatureVcdiff) {
			return fmt.Errorf("sub-module %s cannot apply xdelta3 deltas: install a full artifact", l.h.meta.Orchestrator)
		}
	default:
		return fmt.Errorf("%w: unknown kind of image", artifact.ErrPayload)
	}
	if spools(l.info, len(names) > 1) {
		tmp, err := l.e.temp()
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		req.Path, req.Stdin = filepath.Join(tmp, "image"), nil
		if err := spool(req.Path, content, info.Size); err != nil {
			return err
		}
	}
	size := info.Size
	for i, c := range names {
		if i > 0 && l.info.Has(submodules.FeatureComponents) {
			// It is present: nothing is read.
			size, req.Path, req.Stdin, req.CurrentURL = 0, os.DevNull, nil, ""
			req.Options = slices.DeleteFunc(req.Options, func(o string) bool { return o != submodules.OptionStage })
		}
		if err := l.load(ctx, c, size, req); err != nil {
			return err
		}
	}
	return nil
}

// spools reports whether the content of an image is put into a file for the
// sub-module: it cannot read a stream, or it does not know components by their
// identity, so that an image of several names has to be given to it once for
// each.
func spools(info submodules.Info, severalNames bool) bool {
	return !info.Has(submodules.FeatureStream) || severalNames && !info.Has(submodules.FeatureComponents)
}

// load makes the call for one component.
func (l *loader) load(ctx context.Context, c store.Component, size int64, req submodules.Request) error {
	limit := l.e.LoadTimeout
	if limit <= 0 {
		limit = DefaultLoadTimeout
	}
	l.e.Log.Info("loading", "app", l.a.Name, "component", c.URL, "bytes", size)
	return l.e.call(ctx, submodules.VerbLoad, limit, func(ctx context.Context, tmp string) error {
		req.App, req.Platform, req.Env, req.TempDir = l.a.Name, l.r.Platform, l.r.Env, tmp
		req.URL, req.Components = c.URL, components([]store.Component{c})
		return l.o.Load(ctx, req)
	})
}

// identify finds out which component an image of the payload is, under which
// names, that in the payload first, and what its delta builds on. The release
// knows all of them before the image is loaded.
func (l *loader) identify(info artifact.ImageInfo) (names []store.Component, base string, err error) {
	digest := info.Digest.String()
	if info.URLCurrent != info.URLNew {
		base = info.URLCurrent
	}
	if l.loaded[digest] {
		return nil, "", fmt.Errorf("%w: %s is in it twice", artifact.ErrPayload, digest)
	}
	l.loaded[digest] = true
	found := false
	for _, m := range l.h.meta.Components {
		if m.Digest != info.Digest {
			continue
		}
		if m.URL != info.URLNew {
			names = append(names, componentOf(m))
			continue
		}
		found = true
		names = slices.Insert(names, 0, componentOf(m))
		if len(m.Bases) > 0 {
			base = m.Bases[0].URL + "@" + m.Bases[0].Digest.String()
		}
	}
	if found {
		return names, base, nil
	}
	if len(l.h.meta.Components) > 0 {
		return nil, "", fmt.Errorf("%w: %s (%s) is not announced in the metadata", artifact.ErrPayload, info.URLNew, digest)
	}
	// The shell reference's metadata does not name components.
	c := store.Component{Type: artifact.ComponentImage, URL: info.URLNew, Digest: digest}
	l.r.Components = append(l.r.Components, c)
	return []store.Component{c}, base, l.a.PutRelease(l.r)
}

// spool writes content of a size to a temporary file, if there is room.
func spool(path string, content io.Reader, size int64) error {
	room, err := spoolRoom(filepath.Dir(path), freeBytes)
	if err != nil {
		return err
	}
	if size > room {
		return fmt.Errorf("not enough space on the file system of %s: the image takes %s and %s may be used: free some and try again",
			filepath.Dir(path), human(size), human(room))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
