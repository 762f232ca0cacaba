package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/composemodule"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/deploy/account"
	"github.com/mender-app/mender-app/modules/deploy/announced"
	"github.com/mender-app/mender-app/modules/deploy/calls"
	"github.com/mender-app/mender-app/modules/deploy/files"
	"github.com/mender-app/mender-app/modules/deploy/incoming"
	"github.com/mender-app/mender-app/modules/deploy/space"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// copyAndReceive loads the release that begin has recorded. Where loading
// overwrites components, they are copied first.
func (e *Engine) copyAndReceive(ctx context.Context, a *store.App, h *incoming.Header, payload modules.Streams) error {
	t, err := e.target(ctx, a, a.Deployment.To)
	if err != nil {
		return err
	}
	if err := e.moments().Preload(ctx, a); err != nil {
		return err
	}
	if err := t.copyForDownload(ctx, h.Meta); err != nil {
		return err
	}
	return t.receive(ctx, h, payload)
}

// receive reads the payload: it loads the images and unpacks the manifests.
// Neither may be used before the client has checked the payload's checksums,
// which happens after the call has ended.
func (t *target) receive(ctx context.Context, h *incoming.Header, payload modules.Streams) error {
	l := &loader{target: t, h: h, loaded: map[image.Digest]bool{}, rebuilt: map[image.Digest]bool{}}
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
			defer context.AfterFunc(ctx, func() { _ = s.Close() })() // it may be silent
			var read atomic.Int64                                    // the sub-module may be given it by another goroutine
			defer func() { account.Measured(t.a.Deployment).Received += read.Load() }()
			counted := metered.Reader(ctx, s, func(n int64) { read.Add(n) })
			switch {
			case s.Name == artifact.ImagesPayload && !images:
				images = true
				return l.images(ctx, counted)
			case !manifests && (s.Name == artifact.ManifestsPayload || h.Project && s.Name == composemodule.ManifestsPayload):
				manifests = true
				return l.manifests(counted)
			}
			return fmt.Errorf("%w: unexpected file %q", artifact.ErrPayload, s.Name)
		}()
		if err != nil {
			return err
		}
	}
	if err := l.askTypes(ctx); err != nil {
		return err
	}
	if !manifests {
		return fmt.Errorf("%w: no %s in it", artifact.ErrPayload, artifact.ManifestsPayload)
	}
	for _, c := range h.Meta.Components {
		if !l.loaded[c.Digest] {
			return fmt.Errorf("%w: the metadata announces %s %s (%s), which is missing", artifact.ErrPayload, c.Type, c.URL, c.Digest)
		}
	}
	return nil
}

// loader loads the payload of a release that is being downloaded.
type loader struct {
	*target
	h       *incoming.Header
	loaded  map[image.Digest]bool
	rebuilt map[image.Digest]bool // images whose deltas were applied here
}

func (l *loader) manifests(r io.Reader) error {
	root, err := os.OpenRoot(l.a.ReleaseManifests(l.r.ID))
	if err != nil {
		return err
	}
	defer root.Close()
	digest, err := artifact.ReadManifests(r, root, l.h.ManifestLimits())
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	if err := l.h.CheckManifests(digest); err != nil {
		return err
	}
	return durable.Point("unpacked.manifests")
}

func (l *loader) images(ctx context.Context, r io.Reader) error {
	tmp, err := l.e.temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	room, err := space.Room(tmp, space.Free)
	if err != nil {
		return err
	}
	if l.h.Project {
		return l.projectImages(ctx, r, tmp, room)
	}
	o := artifact.ReadOptions{SpoolDir: tmp, MaxSpool: room, Members: func(d image.Digest) []string { return l.h.Members[d] }}
	if s := l.h.Meta.Sizes; s != nil {
		o.MaxBytes = s.ImagesPayload
	}
	return artifact.ReadImages(r, o, func(info artifact.ImageInfo, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		if err := l.image(ctx, info, content); err != nil {
			return fmt.Errorf("component %s: %w", info.URLNew, err)
		}
		return nil
	})
}

// image loads one image or file under each of its names.
func (l *loader) image(ctx context.Context, info artifact.ImageInfo, content io.Reader) error {
	names, base, err := l.identify(info)
	if err != nil {
		return err
	}
	if l.h.Members[info.Digest] != nil {
		info.Size = announced.PayloadBytes(l.h.Meta, info.Digest)
		if info.Kind == artifact.KindShared {
			info.Kind = artifact.KindDelta // the shared part and the rest are one delta
		}
	}
	if err := announced.CheckKind(l.h.Meta, info); err != nil {
		return err
	}
	if l.rebuilds(names[0], info.Kind) {
		return l.rebuildAndLoad(ctx, info, names, content)
	}
	req := submodules.Request{CurrentURL: base, Path: "-", Stdin: content, Options: l.stage()}
	switch info.Kind {
	case artifact.KindFull:
	case artifact.KindDelta:
		req.Options = append(req.Options, submodules.OptionDelta)
	case artifact.KindReferenceDeepDelta:
		req.Options = append(req.Options, submodules.OptionDeepDelta)
	case artifact.KindReferenceDelta: // the sub-module knows it by its first bytes
	default:
		return fmt.Errorf("%w: unknown kind of image", artifact.ErrPayload)
	}
	if files.Spools(l.info, len(names) > 1) || files.Is(names[0]) || l.nameless() {
		tmp, err := l.e.temp()
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		req.Path, req.Stdin = filepath.Join(tmp, "image"), nil
		if err := files.Spool(req.Path, content, info.Size); err != nil {
			return err
		}
		if info.Kind == artifact.KindFull {
			if names[0].Type, err = l.checkContent(names[0], req.Path); err != nil {
				return err
			}
		}
	}
	return l.loadNames(ctx, names, info.Size, req)
}

// stage is the option that keeps what runs, for a sub-module that has it.
func (l *loader) stage() []string {
	if !l.info.Has(submodules.FeatureStage) {
		return nil
	}
	return []string{submodules.OptionStage}
}

// loadNames loads one image or file under each of its names.
func (l *loader) loadNames(ctx context.Context, names []store.Component, size int64, req submodules.Request) error {
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

// load loads one component.
func (l *loader) load(ctx context.Context, c store.Component, size int64, req submodules.Request) error {
	l.e.Log.Info("loading", "app", l.a.Name, "component", c.URL, "bytes", size)
	suspect := l.e.suspects().Has(l.r.Orchestrator, c)
	if suspect {
		req.Options = append(slices.Clone(req.Options), submodules.OptionDistrust)
	}
	req.App, req.Platform = l.app, l.r.Platform
	req.Env, _ = calls.Env(l.r.Env, l.info, l.e.AllowEnv)
	req.URL, req.Components = c.URL, calls.Components([]store.Component{c})
	if !l.rebuilt[c.Digest] { // what is announced is the delta
		req.Components[0].Bases, req.Components[0].Announced = announced.Bases(l.h.Meta, c), announced.Content(l.h.Meta, c)
	}
	err := l.call(ctx, submodules.VerbLoad, req, l.o.Load)
	if err != nil || !suspect {
		return err
	}
	return l.clearSuspect(ctx, c)
}

// identify finds the components for an image of the payload (see announced.Names), and
// records them in the release before the image is loaded.
func (l *loader) identify(info artifact.ImageInfo) (names []store.Component, base string, err error) {
	if l.loaded[info.Digest] {
		return nil, "", fmt.Errorf("%w: %s is in it twice", artifact.ErrPayload, info.Digest)
	}
	l.loaded[info.Digest] = true
	names, base, err = announced.Names(l.h.Meta, info, l.info.Has(submodules.FeatureComponents))
	if err != nil || len(l.h.Meta.Components) > 0 {
		return names, base, err
	}
	l.r.Components = append(l.r.Components, names...)
	return names, base, l.a.PutRelease(l.r)
}

// projectImages loads the images of an artifact of mender-container-modules, which
// its metadata does not name.
func (l *loader) projectImages(ctx context.Context, r io.Reader, tmp string, room int64) error {
	if !l.info.Has(submodules.FeatureStage) {
		return unfit("sub-module %s cannot load beside what runs: make the artifact with app-gen", l.r.Orchestrator)
	}
	return composemodule.ReadImages(r, tmp, room, func(i composemodule.Image) error {
		var names []store.Component
		for _, url := range i.URLs {
			names = append(names, store.Component{Type: artifact.ComponentImage, URL: url, Digest: i.Digest})
		}
		l.r.Components = append(l.r.Components, names...)
		if err := cmp.Or(ctx.Err(), l.a.PutRelease(l.r)); err != nil {
			return err
		}
		return l.loadNames(ctx, names, i.Bytes, submodules.Request{Path: i.Path, Options: l.stage()})
	})
}
