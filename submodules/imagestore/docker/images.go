package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dimage "github.com/docker/docker/api/types/image"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Image is an image in the engine.
type Image struct {
	imagestore.Identity
	ID       string // the engine's own; never an identity
	Tags     []string
	Platform image.Platform
	Size     int64 // bytes unpacked, as the engine counts them

	// manifest is the digest by which the caller identifies the image, if that is
	// not the digest of its config.
	manifest image.Digest

	// layers are the blobs of the layers in the containerd store, nil if they are
	// unknown.
	layers []image.Descriptor
	// inspectErr is the error with which the engine failed to describe the image, nil
	// if it can. The engine can then only remove the image.
	inspectErr error
}

// stored is the image as imagestore sees it.
func (img Image) stored() imagestore.Stored {
	return imagestore.Stored{Identity: img.Identity, ID: img.ID, Platform: img.Platform, InspectErr: img.inspectErr}
}

// errNoImage says that the engine has no image under a reference.
var errNoImage = errors.New("no such image")

// Inspect returns the image that ref (a tag or the engine's ID) names. The error for
// a missing image is submodules.ErrNotFound.
func (e *Engine) Inspect(ctx context.Context, ref string) (Image, error) {
	res, err := e.cli.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return Image{}, submodules.Mark(fmt.Errorf("image %s: %w", ref, errNoImage), submodules.ErrNotFound)
	}
	if err != nil {
		return e.inspectFallback(ctx, ref, fmt.Errorf("inspect image %s: %w", ref, err))
	}
	img := Image{
		ID:       res.ID,
		Tags:     res.RepoTags,
		Platform: image.Platform{OS: res.Os, Arch: res.Architecture, Variant: res.Variant}.Normalize(),
		Size:     res.Size,
	}
	for _, l := range res.RootFS.Layers {
		d, err := digest.Parse(l)
		if err != nil {
			return Image{}, fmt.Errorf("inspect image %s: layer: %w", ref, err)
		}
		img.DiffIDs = append(img.DiffIDs, d)
	}
	if img.Config, img.layers, err = e.configDigest(ctx, res.ID); err != nil {
		return Image{}, fmt.Errorf("inspect image %s: %w", ref, err)
	}
	return img, nil
}

// Find returns the image with that identity, whatever its names. It tries the
// application's own reference and hint (if any) first, then all images of the
// engine. If the identity has the digest of the manifest that the image was loaded
// by, the application's ManifestRef leads to it.
func (e *Engine) Find(ctx context.Context, app string, id imagestore.Identity, hint string) (Image, error) {
	refs := []string{imagestore.OwnRef(app, id.Config)}
	if ctd, err := e.containerd(ctx); err != nil {
		return Image{}, err
	} else if !ctd {
		refs = append(refs, id.Config.String())
	}
	if hint != "" {
		refs = append(refs, hint)
	}
	for _, ref := range refs {
		img, err := e.Inspect(ctx, ref)
		if err == nil && img.is(id) {
			return img, nil
		}
		if err != nil && !errors.Is(err, submodules.ErrNotFound) {
			return Image{}, err
		}
	}
	if ctd, _ := e.containerd(ctx); ctd {
		all, err := e.all(ctx)
		if err != nil {
			return Image{}, err
		}
		for _, img := range all {
			if img.is(id) {
				return img, nil
			}
		}
	}
	img, err := e.Inspect(ctx, imagestore.ManifestRef(app, id.Config))
	if err == nil && (id.DiffIDs == nil || slices.Equal(img.DiffIDs, id.DiffIDs)) {
		img.manifest = id.Config
		return img, nil
	}
	if err != nil && !errors.Is(err, submodules.ErrNotFound) {
		return Image{}, err
	}
	return Image{}, submodules.Mark(fmt.Errorf("image with config %s: %w", id.Config, errNoImage), submodules.ErrNotFound)
}

// is reports whether the image has that identity; diffIDs are compared if they are
// known.
func (img Image) is(id imagestore.Identity) bool {
	return img.Config == id.Config && (id.DiffIDs == nil || slices.Equal(img.DiffIDs, id.DiffIDs))
}

// list returns the engine's images. If somebody removes an image at that moment, the
// containerd store fails the whole list ("content digest …: not found"): then list
// asks again.
func (e *Engine) list(ctx context.Context, o dimage.ListOptions) ([]dimage.Summary, error) {
	for try := 1; ; try++ {
		list, err := e.cli.ImageList(ctx, o)
		if err == nil {
			return list, nil
		}
		if try == 10 || !errdefs.IsNotFound(err) && !strings.Contains(err.Error(), "not found") {
			return nil, fmt.Errorf("list images: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("list images: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(time.Duration(try) * 50 * time.Millisecond):
		}
	}
}

// all returns every image of the engine. It leaves out images that are removed
// meanwhile, and those that the engine cannot describe.
func (e *Engine) all(ctx context.Context) ([]Image, error) {
	list, err := e.list(ctx, dimage.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, s := range list {
		img, err := e.Inspect(ctx, s.ID)
		if err == nil && img.inspectErr == nil {
			all = append(all, img)
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// Own returns the images that have an own reference of the application, each image
// once for each reference.
func (e *Engine) Own(ctx context.Context, app string) ([]Image, error) {
	list, err := e.list(ctx, dimage.ListOptions{Filters: filters.NewArgs(filters.Arg("reference", imagestore.OwnRepository(app)+":*"))})
	if err != nil {
		return nil, err
	}
	var own []Image
	for _, s := range list {
		img, err := e.Inspect(ctx, s.ID)
		if errors.Is(err, submodules.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, t := range img.Tags {
			if d, ok := imagestore.ParseOwnRef(app, t); ok && d == img.Config {
				img.manifest = ""
				own = append(own, img)
			} else if d, ok := imagestore.ParseManifestRef(app, t); ok {
				img.manifest = d
				own = append(own, img)
			}
		}
	}
	return own, nil
}

// Ref returns the application's own reference for the image, made from the digest
// that the caller used for it. The image may not have that reference.
func (img Image) Ref(app string) string {
	if img.manifest != "" {
		return imagestore.ManifestRef(app, img.manifest)
	}
	return imagestore.OwnRef(app, img.Config)
}

// OwnRef returns an own reference of the application that the image really has:
// Ref, or else another one.
func (img Image) OwnRef(app string) (string, bool) {
	if slices.Contains(img.Tags, img.Ref(app)) {
		return img.Ref(app), true
	}
	for _, t := range img.Tags {
		if d, ok := imagestore.ParseOwnRef(app, t); ok && d == img.Config {
			return t, true
		}
		if _, ok := imagestore.ParseManifestRef(app, t); ok {
			return t, true
		}
	}
	return "", false
}

// Known reports whether an application identifies the image by digest: the digest
// of its config, or of the manifest that it was loaded by.
func (img Image) Known(app string, digest image.Digest) bool {
	return digest == img.Config || slices.Contains(img.Tags, imagestore.ManifestRef(app, digest))
}

// Tag makes ref name the image, wherever it pointed before.
func (e *Engine) Tag(ctx context.Context, img Image, ref string) error {
	return e.tag(ctx, img.ID, img.Config, ref)
}

func (e *Engine) tag(ctx context.Context, id string, config image.Digest, ref string) error {
	if cur, err := e.Inspect(ctx, ref); err == nil && cur.ID == id {
		return nil
	} else if err != nil && !errors.Is(err, submodules.ErrNotFound) {
		return err
	}
	err := e.cli.ImageTag(ctx, id, ref)
	if err == nil {
		return nil
	}
	missing := IsNotFound(err)
	if err = fmt.Errorf("tag image %s as %s: %w", config, ref, err); missing {
		err = submodules.Mark(err, submodules.ErrNotFound)
	}
	return err
}

// Untag removes the reference, and the image with its last reference. If a container
// uses the image, both stay. A missing reference is not an error. removed reports whether
// the reference is gone.
func (e *Engine) Untag(ctx context.Context, ref string) (removed bool, err error) {
	_, err = e.cli.ImageRemove(ctx, ref, dimage.RemoveOptions{PruneChildren: true})
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return true, nil
	case errdefs.IsConflict(err):
		return false, nil
	}
	return false, fmt.Errorf("remove image reference %s: %w", ref, err)
}

// DeleteName removes one name of an image that the application still needs by
// another name. The tag url goes if it still names this image, no other
// application has the image, and no container was made by that name.
func (e *Engine) DeleteName(ctx context.Context, app string, img Image, url string) error {
	list, err := e.cli.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range list {
		if image.SameRef(c.Image, url) {
			e.log(fmt.Sprintf("tag %s stays: a container uses it", url))
			return nil
		}
	}
	return e.untag(ctx, img, tagsToRemove(app, img, url))
}

// tagsToRemove returns those of urls that name the image. It returns none if
// another application has the image: the names may be that one's.
func tagsToRemove(app string, img Image, urls ...string) (refs []string) {
	for _, t := range img.Tags {
		if imagestore.IsOwnRef(t) && !strings.HasPrefix(t, imagestore.OwnRepository(app)+":") {
			return nil
		}
	}
	for _, url := range urls {
		if url != "" && slices.ContainsFunc(img.Tags, func(t string) bool { return image.SameRef(t, url) }) {
			refs = append(refs, url)
		}
	}
	return refs
}

// Delete removes the application's reference to an image, and the image if
// nothing else uses it. urls are the tags in the application's manifests: they go
// too if they still name this image and no other application has it. The image
// stays while a container uses it or another reference names it. An image without
// any name is removed: a power cut right after a load can take its names.
func (e *Engine) Delete(ctx context.Context, app string, img Image, urls ...string) error {
	used, err := e.Used(ctx, img)
	if err != nil {
		return err
	}
	if used {
		e.log(fmt.Sprintf("image %s stays: a container uses it", img.Config))
		return nil
	}
	if len(img.Tags) == 0 {
		_, err := e.Untag(ctx, img.ID)
		return err
	}
	refs := tagsToRemove(app, img, urls...)
	// Remove the own reference last: as long as it exists, the same call finds the
	// image again.
	if own, ok := img.OwnRef(app); ok {
		refs = append(refs, own)
	}
	return e.untag(ctx, img, refs)
}

// untag removes references of an image.
func (e *Engine) untag(ctx context.Context, img Image, refs []string) error {
	for _, ref := range refs {
		// The tag may have moved meanwhile. This removes it from the image that it
		// names now.
		cur, err := e.Inspect(ctx, ref)
		if errors.Is(err, submodules.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if cur.ID != img.ID {
			continue
		}
		if _, err := e.Untag(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// Disown is Delete for an image that only containers of somebody else use, users. The tags
// that they were made by stay. Where the last name goes, those that run keep the image
// without a name; one that does not run keeps its layers.
func (e *Engine) Disown(ctx context.Context, app string, img Image, users []container.Summary, urls ...string) error {
	refs := slices.DeleteFunc(tagsToRemove(app, img, urls...), func(ref string) bool {
		return slices.ContainsFunc(users, func(c container.Summary) bool { return image.SameRef(c.Image, ref) })
	})
	for _, t := range img.Tags {
		if strings.HasPrefix(t, imagestore.OwnRepository(app)+":") {
			refs = append(refs, t)
		}
	}
	if len(refs) == 0 || len(refs) < len(img.Tags) {
		return e.untag(ctx, img, refs)
	}
	last := len(refs) - 1
	if err := e.untag(ctx, img, refs[:last]); err != nil {
		return err
	}
	// The engine refuses to take the last name of an image that is in use unless it is forced to.
	_, err := e.cli.ImageRemove(ctx, refs[last], dimage.RemoveOptions{Force: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove image reference %s: %w", refs[last], err)
	}
	return nil
}

// Used reports whether any container, running or not, was made from the image.
func (e *Engine) Used(ctx context.Context, img Image) (bool, error) {
	users, err := e.Users(ctx, img)
	return len(users) > 0, err
}

// Users returns the containers, running or not, that were made from the image.
func (e *Engine) Users(ctx context.Context, img Image) (users []container.Summary, err error) {
	list, err := e.cli.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, c := range list {
		if madeFrom(c, img) {
			users = append(users, c)
		}
	}
	return users, nil
}
