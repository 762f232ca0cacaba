package k8s

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
)

// images returns the node's image store, connected on first use.
func (s *session) images(ctx context.Context) (*containerd.Store, error) {
	if s.store != nil {
		return s.store, nil
	}
	store, err := containerd.Open(ctx, containerd.Config{Address: s.set.Containerd, Snapshotter: s.set.Snapshotter, TempDir: s.set.TempDir})
	if err != nil {
		return nil, submodules.Mark(err, submodules.ErrRequirement)
	}
	s.store = store
	return store, nil
}

// wanted returns the reference and the identity of the image that a URL of a request
// names.
func wanted(r submodules.Request, url string) (ref string, want imagestore.Identity, err error) {
	if ref, _ = submodules.SplitURL(url); ref == "" {
		return "", want, noURL(url)
	}
	want, err = imagestore.Wanted(r, url)
	return ref, want, err
}

// Load implements submodules.Session.
func (s *session) Load(ctx context.Context, r submodules.LoadRequest) error {
	if _, _, err := wanted(r.Request, r.URL); err != nil {
		return err
	}
	q, err := imagestore.NewLoadRequest(r)
	if err != nil {
		return err
	}
	store, err := s.images(ctx)
	if err != nil {
		return err
	}
	store.SetLog(r.Logf)
	store.SetTempDir(r.TempDir)
	q.Xdelta3 = s.set.Xdelta3
	if s.set.Sandbox {
		dirs, err := store.Storage(ctx)
		if err != nil {
			return err
		}
		q.Confine(ctx, r.Path, imagestore.Process{Old: dirs, Network: s.set.Registry != nil})
	}
	return imagestore.LoadFile(ctx, pushing{store, s.set.Registry, r.App}, q, r.Path, r.Stdin)
}

// pushing is the node's image store with a registry beside it: an image that gets
// the application's own reference is pushed there too.
type pushing struct {
	*containerd.Store
	registry *containerd.Registry
	app      string
}

// Name implements imagestore.Store.
func (p pushing) Name(ctx context.Context, img imagestore.Stored, ref, url string) error {
	if err := p.Store.Name(ctx, img, ref, url); err != nil || !imagestore.IsOwnRef(ref) {
		return err
	}
	if p.registry != nil {
		if err := p.Push(ctx, p.registry, p.app, img.Identity); err != nil {
			return err
		}
	}
	return durable.Point("load.kept")
}

// pinned is one image of a release, and the name in the manifests that must mean it.
type pinned struct {
	url string
	imagestore.Identity
}

// pins returns the images of the release according to the caller, by their names in
// Kubernetes.
func pins(r submodules.Request) (map[string]pinned, error) {
	all := map[string]pinned{}
	for _, c := range r.Components {
		if c.Digest == "" || c.Type != "" && c.Type != "image" {
			continue
		}
		ref, _ := submodules.SplitURL(c.URL)
		id, err := imagestore.ParseIdentity(c)
		if err != nil {
			return nil, err
		}
		all[containerd.Canonical(ref)] = pinned{ref, id}
	}
	return all, nil
}

// pin points each name at its recorded image again, and pushes missing images to the
// registry.
func (s *session) pin(ctx context.Context, app string, r *release) error {
	for _, id := range r.pushes {
		store, err := s.images(ctx)
		if err != nil {
			return err
		}
		if err := store.Push(ctx, s.set.Registry, app, id); err != nil {
			return err
		}
	}
	for _, p := range r.pins {
		store, err := s.images(ctx)
		if err != nil {
			return err
		}
		if err := store.TagOwn(ctx, app, p.url, p.Identity); err != nil {
			return err
		}
		if err := store.Tag(ctx, p.url, p.url, p.Identity); err != nil {
			return err
		}
	}
	return nil
}

// Save implements submodules.Session.
func (s *session) Save(ctx context.Context, r submodules.SaveRequest) error {
	ref, want, err := wanted(r.Request, r.URL)
	if err != nil {
		return err
	}
	store, err := s.images(ctx)
	if err != nil {
		return err
	}
	return r.SaveTo(ctx, func(out io.Writer) error {
		w := bufio.NewWriterSize(out, 256<<10)
		return errors.Join(store.Archive(ctx, ref, want, w), w.Flush())
	})
}

// List implements submodules.Session.
func (s *session) List(ctx context.Context, _ submodules.Request) ([]submodules.Component, error) {
	store, err := s.images(ctx)
	if err != nil {
		return nil, err
	}
	images, err := store.List(ctx, s.req.App)
	if err != nil {
		return nil, err
	}
	var list []submodules.Component
	for _, img := range images {
		extra, err := json.Marshal(map[string]any{"in_use": img.InUse, "size": img.Size})
		if err != nil {
			return nil, err
		}
		c := submodules.Component{Type: "image", URL: img.URL, Digest: img.Config, DiffIDs: img.DiffIDs, AdditionalData: extra}
		list = append(list, c)
	}
	return list, nil
}

// Delete implements submodules.Session.
func (s *session) Delete(ctx context.Context, r submodules.DeleteRequest) error {
	ref, want, err := wanted(r.Request, r.URL)
	if err != nil {
		return err
	}
	store, err := s.images(ctx)
	if err != nil {
		return err
	}
	remove := func() error { return store.Delete(ctx, r.App, ref, want) }
	if s.set.Registry == nil {
		return remove()
	}
	return s.unpush(ctx, store, remove)
}

// unpush removes images from the store, and then from the registry those that the
// application no longer has.
func (s *session) unpush(ctx context.Context, store *containerd.Store, remove func() error) error {
	app, registry := s.req.App, s.set.Registry
	had, err := store.List(ctx, app)
	if err != nil {
		return err
	}
	refs := map[image.Digest]string{}
	for _, img := range had {
		if refs[img.Config], err = store.RegistryRef(ctx, registry, app, img.Identity); err != nil {
			return err
		}
	}
	if err := remove(); err != nil {
		return err
	}
	left, err := store.List(ctx, app)
	if err != nil {
		return err
	}
	for _, img := range left {
		delete(refs, img.Config)
	}
	for _, ref := range refs {
		// An image left there does no harm; a later push overwrites it.
		if err := registry.RemoveFromRegistry(ctx, ref); err != nil {
			s.log("warning: %v", err)
		}
	}
	return nil
}

// Verify implements submodules.Session.
func (s *session) Verify(ctx context.Context, _ submodules.Request) ([]string, error) {
	store, err := s.images(ctx)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, c := range s.req.Components {
		if c.Type != "" && c.Type != "image" {
			continue
		}
		ref, _ := submodules.SplitURL(c.URL)
		id, err := imagestore.ParseIdentity(c)
		if err != nil {
			return nil, err
		}
		what, err := store.Verify(ctx, ref, id)
		if err != nil {
			return nil, err
		}
		if len(what) == 0 && s.set.Registry != nil {
			there, err := store.InRegistry(ctx, s.set.Registry, s.req.App, id)
			if err != nil {
				return nil, err
			}
			if !there {
				what = []string{"it is not in the registry " + s.set.Registry.String()}
			}
		}
		for _, w := range what {
			problems = append(problems, ref+": "+w)
		}
	}
	return problems, nil
}

// Sync implements submodules.Session.
func (s *session) Sync(ctx context.Context, _ submodules.Request) error {
	store, err := s.images(ctx)
	if err != nil {
		return err
	}
	return store.Sync(ctx)
}
