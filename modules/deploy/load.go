package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/composemodule"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// This file loads the payload of an artifact: it gives images and files to the
// sub-module, applies deltas the sub-module cannot apply, and unpacks the manifests. It
// touches nothing that runs, unless the sub-module lacks the feature stage: then the caller
// has copied what is overwritten.
//
// It must not know in which state a deployment is, nor what its caller does with
// what is loaded.

// loader loads the payload of the target's release. Before receive, the release's
// components are recorded, as far as the metadata names them.
type loader struct {
	*target
	header *header // resolved
	// imagesOnly leaves the manifests out, and writes nothing to the store.
	imagesOnly bool

	loaded  map[image.Digest]bool
	rebuilt map[image.Digest]bool // images whose deltas were applied here
}

// loader loads the target's release.
func (t *target) loader(h *header) *loader { return &loader{target: t, header: h} }

// receive reads the payload: it loads the images and unpacks the manifests.
// Neither may be used before the client has checked the payload's checksums,
// which happens after the call has ended.
func (l *loader) receive(ctx context.Context, payload modules.Streams) error {
	l.loaded, l.rebuilt = map[image.Digest]bool{}, map[image.Digest]bool{}
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
			defer func() {
				if d := l.a.Deployment; d != nil && !l.imagesOnly {
					journal.Measured(d).Received += read.Load()
				}
			}()
			counted := metered.Reader(ctx, s, func(n int64) { read.Add(n) })
			switch {
			case s.Name == artifact.ImagesPayload && !images:
				images = true
				return l.images(ctx, counted)
			case !manifests && (s.Name == artifact.ManifestsPayload || l.header.Project && s.Name == composemodule.ManifestsPayload):
				manifests = true
				if l.imagesOnly {
					_, err := io.Copy(io.Discard, counted)
					return err
				}
				if err := l.manifests(counted); err != nil || images || len(l.header.Meta.Components) == 0 {
					return err
				}
				return l.checkEarly(ctx)
			}
			return fmt.Errorf("%w: unexpected file %q", artifact.ErrPayload, s.Name)
		}()
		if err != nil {
			return err
		}
	}
	if err := l.fetch(ctx); err != nil {
		return err
	}
	if err := l.askTypes(ctx); err != nil {
		return err
	}
	if !manifests {
		return fmt.Errorf("%w: no %s in it", artifact.ErrPayload, artifact.ManifestsPayload)
	}
	return l.all()
}

// all makes sure that the payload had all components.
func (l *loader) all() error {
	for _, c := range l.header.Meta.Components {
		if !l.loaded[c.Digest] {
			return fmt.Errorf("%w: the metadata announces %s %s (%s), which is missing", artifact.ErrPayload, c.Type, c.URL, c.Digest)
		}
	}
	return nil
}

// checkEarly lets the sub-module refuse manifests that came before the images, so that
// none is loaded for them. Whatever else goes wrong may be right when the release is
// installed, and the sub-module is asked again then.
func (l *loader) checkEarly(ctx context.Context) error {
	err := l.checkManifests(ctx, l.a.ReleaseManifests(l.r.ID))
	if err != nil && !errors.Is(err, ErrUnfit) && ctx.Err() == nil {
		l.e.Log.Warn("the manifests could not be checked yet", "app", l.app, "error", err)
		return nil
	}
	return err
}

func (l *loader) manifests(r io.Reader) error {
	root, err := os.OpenRoot(l.a.ReleaseManifests(l.r.ID))
	if err != nil {
		return err
	}
	defer root.Close()
	digest, err := artifact.ReadManifests(r, root, l.header.ManifestLimits())
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	if err := l.header.CheckManifests(digest); err != nil {
		return err
	}
	return durable.Point("unpacked.manifests")
}

// images loads the images of the payload.
func (l *loader) images(ctx context.Context, r io.Reader) error {
	var most int64
	if s := l.header.Meta.Sizes; s != nil {
		most = s.ImagesPayload
	}
	return l.readImages(ctx, r, most, func(d image.Digest) error {
		if _, apart := l.header.Content[d]; apart {
			return fmt.Errorf("%w: %s is in it, and the metadata says that it is outside of the payload", artifact.ErrPayload, d)
		}
		return nil
	})
}

// readImages loads the images of a payload of at most most bytes, unpacked, that expected
// does not refuse; 0 bytes are not announced.
func (l *loader) readImages(ctx context.Context, r io.Reader, most int64, expected func(image.Digest) error) error {
	tmp, err := l.e.Store.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	room, err := diskspace.Room(tmp, diskspace.Free)
	if err != nil {
		return err
	}
	if l.header.Project {
		return l.projectImages(ctx, r, tmp, room)
	}
	o := artifact.ReadOptions{SpoolDir: tmp, MaxSpool: room, MaxBytes: most, Members: func(d image.Digest) []string { return l.header.Members[d] }}
	return artifact.ReadImages(r, o, func(info artifact.ImageInfo, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		if err := expected(info.Digest); err != nil {
			return err
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
	if l.header.Members[info.Digest] != nil {
		info.Size = l.header.Meta.PayloadBytes(info.Digest)
		if info.Kind == artifact.KindShared {
			info.Kind = artifact.KindDelta // the shared part and the rest are one delta
		}
	}
	if err := l.header.Meta.CheckKind(info); err != nil {
		return err
	}
	if l.rebuilds(names[0], info.Kind) {
		return l.rebuildAndLoad(ctx, info, names, content)
	}
	req := submodules.LoadRequest{CurrentURL: base, Path: "-", Stdin: content, Stage: l.stages()}
	switch info.Kind {
	case artifact.KindFull:
	case artifact.KindDelta:
		req.Delta = true
	case artifact.KindReferenceDeepDelta:
		req.DeepDelta = true
	case artifact.KindReferenceDelta: // the sub-module knows it by its first bytes
	default:
		return fmt.Errorf("%w: unknown kind of image", artifact.ErrPayload)
	}
	if spools(l.info, len(names) > 1) || isFile(names[0]) || l.nameless() {
		tmp, err := l.e.Store.Temp()
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		req.Path, req.Stdin = filepath.Join(tmp, "image"), nil
		if err := spool(req.Path, content, info.Size); err != nil {
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

// stages reports whether LOAD can keep what runs.
func (l *loader) stages() bool { return l.info.Has(submodules.FeatureStage) }

// loadNames loads one image or file under each of its names.
func (l *loader) loadNames(ctx context.Context, names []store.Component, size int64, req submodules.LoadRequest) error {
	for i, c := range names {
		if i > 0 && l.info.Has(submodules.FeatureComponents) {
			// It is present: nothing is read.
			size, req = 0, submodules.LoadRequest{Path: os.DevNull, Stage: req.Stage}
		}
		if err := l.load(ctx, c, size, req); err != nil {
			return err
		}
	}
	return nil
}

// load loads one component.
func (l *loader) load(ctx context.Context, c store.Component, size int64, req submodules.LoadRequest) error {
	l.e.Log.Info("loading", "app", l.a.Name, "component", c.URL, "bytes", size)
	suspect := l.e.damaged().Has(l.r.Orchestrator, c)
	req.Distrust = suspect
	req.App, req.Platform = l.a.Name, l.r.Platform
	req.Env, _ = environment(l.r.Env, l.info, l.e.AllowEnv)
	req.URL, req.Components = c.URL, forSubmodule([]store.Component{c})
	if !l.rebuilt[c.Digest] { // what is announced is the delta
		req.Components[0].Bases, req.Components[0].Announced = announcedBases(l.header.Meta, c), announcedContent(l.header.Meta, c)
	}
	err := l.client().Load(ctx, req)
	if err != nil || !suspect {
		return err
	}
	return l.clearDamaged(ctx, c)
}

// identify finds the components for an image of the payload (see announcedNames), and
// records them in the release before the image is loaded.
func (l *loader) identify(info artifact.ImageInfo) (names []store.Component, base string, err error) {
	if l.loaded[info.Digest] {
		return nil, "", fmt.Errorf("%w: %s is in it twice", artifact.ErrPayload, info.Digest)
	}
	l.loaded[info.Digest] = true
	names, base, err = announcedNames(l.header.Meta, info, l.info.Has(submodules.FeatureComponents))
	if err != nil || len(l.header.Meta.Components) > 0 {
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
		return l.loadNames(ctx, names, i.Bytes, submodules.LoadRequest{Path: i.Path, Stage: l.stages()})
	})
}
