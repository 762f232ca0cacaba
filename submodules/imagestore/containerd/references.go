package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Name implements imagestore.Store. It also unpacks the image if it is not.
func (s *Store) Name(ctx context.Context, img imagestore.Stored, ref, url string) error {
	if url, _ = submodules.SplitURL(url); url != "" {
		return s.Tag(ctx, ref, url, img.Identity)
	}
	st, err := s.find(ctx, img.Identity)
	if err != nil {
		return err
	}
	if st == nil {
		return missing(ref, img.Identity)
	}
	if err := s.unpack(ctx, st); err != nil {
		return err
	}
	return s.name(ctx, images.Image{Name: ref, Target: st.target})
}

// Unname implements imagestore.Store.
func (s *Store) Unname(ctx context.Context, ref string) error {
	err := s.client.ImageService().Delete(ctx, Canonical(ref), images.SynchronousDelete())
	if errdefs.IsUnavailable(err) {
		return nil
	}
	return ignoreMissing(err)
}

// TagOwn is Tag with the application's own reference.
func (s *Store) TagOwn(ctx context.Context, app, url string, id imagestore.Identity) error {
	st, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	if st == nil {
		return missing(url, id)
	}
	return s.Tag(ctx, st.own(app, id), url, id)
}

// Tag makes a reference name the image, protects it from garbage collection, and
// unpacks it if it is not unpacked. An own reference also remembers url, the image's
// name in the manifests. The error for a missing image is submodules.ErrNotFound.
func (s *Store) Tag(ctx context.Context, ref, url string, id imagestore.Identity) error {
	st, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	if st == nil {
		return missing(url, id)
	}
	if err := s.unpack(ctx, st); err != nil {
		return err
	}
	name := Canonical(ref)
	labels := map[string]string{labelPinned: "pinned", labelManaged: "managed"}
	if imagestore.IsOwnRef(name) {
		urls := strings.Fields(st.labels[name][labelURLs])
		if url = image.FamiliarRef(url); !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
		labels[labelURLs] = strings.Join(urls, " ")
	}
	return s.name(ctx, images.Image{Name: name, Target: st.target, Labels: labels})
}

// name creates or moves a reference.
func (s *Store) name(ctx context.Context, img images.Image) error {
	is := s.client.ImageService()
	for {
		_, err := is.Create(ctx, img)
		if err == nil {
			return nil
		}
		if !errdefs.IsAlreadyExists(err) {
			return fmt.Errorf("name image %s: %w", img.Name, err)
		}
		paths := []string{"target"}
		for k := range img.Labels {
			paths = append(paths, "labels."+k)
		}
		_, err = is.Update(ctx, img, paths...)
		if err == nil {
			return nil
		}
		if !errdefs.IsNotFound(err) {
			return fmt.Errorf("name image %s: %w", img.Name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Image is one component of an application, as List gives it.
type Image struct {
	URL   string
	InUse bool  // a container runs it
	Size  int64 // of its blobs, in bytes
	imagestore.Identity
}

// List returns the application's images that are in the store.
func (s *Store) List(ctx context.Context, app string) ([]Image, error) {
	list, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	used, err := s.used(ctx)
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, st := range list {
		owns := st.owns(app)
		if len(owns) == 0 {
			continue
		}
		if ok, err := s.whole(ctx, st); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		var size int64
		for _, l := range st.layers {
			size += l.Size
		}
		for _, url := range st.urls(owns) {
			out = append(out, Image{URL: url, InUse: used.of(st), Size: size, Identity: imagestore.Identity{Config: st.config, DiffIDs: st.diffIDs}})
		}
	}
	slices.SortFunc(out, func(a, b Image) int { return strings.Compare(a.URL+"@"+string(a.Config), b.URL+"@"+string(b.Config)) })
	return out, nil
}

// urls are the names of an image in the manifests, as its own references remember
// them.
func (st *stored) urls(owns []string) (urls []string) {
	for _, own := range owns {
		for _, url := range strings.Fields(st.labels[own][labelURLs]) {
			if !slices.Contains(urls, url) {
				urls = append(urls, url)
			}
		}
	}
	return urls
}

func top(diffIDs []image.Digest) image.Digest {
	if len(diffIDs) == 0 {
		return ""
	}
	chain := image.ChainIDs(diffIDs)
	return chain[len(chain)-1]
}

// usage has the images that containers run.
type usage struct {
	configs map[image.Digest]bool // configs of the kubelet's containers, which remember them
	chains  map[image.Digest]bool // chain IDs below the snapshots of other containers
	names   map[string]bool       // names of images in pods, if the kubelet reports them (1.28)
}

func (u usage) of(st *stored) bool { return u.configs[st.config] || u.chains[top(st.diffIDs)] }

// criMetadata is the extension of a container in which the CRI plugin records the
// container's image.
const criMetadata = "io.cri-containerd.container.metadata"

// used checks all containers, made from any name of an image.
func (s *Store) used(ctx context.Context) (usage, error) {
	u := usage{configs: map[image.Digest]bool{}, chains: map[image.Digest]bool{}, names: map[string]bool{}}
	list, err := s.client.ContainerService().List(ctx)
	if err != nil {
		return u, fmt.Errorf("list containers: %w", err)
	}
	running, err := s.runningTasks(ctx)
	if err != nil {
		return u, err
	}
	pods := livePods(list, running)
	for _, c := range list {
		if uid := c.Labels[labelPod]; uid != "" && !pods[uid] {
			continue // ended; the kubelet removes it later
		}
		if ext := c.Extensions[criMetadata]; ext != nil {
			var m struct {
				Metadata struct {
					ImageRef string
					Config   struct {
						Image struct {
							Name string `json:"user_specified_image"`
						}
					}
				}
			}
			if json.Unmarshal(ext.GetValue(), &m) == nil && image.Digest(m.Metadata.ImageRef).Valid() {
				u.configs[image.Digest(m.Metadata.ImageRef)] = true
				if name := m.Metadata.Config.Image.Name; name != "" {
					u.names[Canonical(name)] = true
				}
				continue
			}
		}
		if c.SnapshotKey == "" {
			continue
		}
		info, err := s.client.SnapshotService(c.Snapshotter).Stat(ctx, c.SnapshotKey)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return u, fmt.Errorf("snapshot of container %s: %w", c.ID, err)
		}
		u.chains[image.Digest(info.Parent)] = true
	}
	return u, nil
}

// runningTasks are the ids of the containers that run.
func (s *Store) runningTasks(ctx context.Context) (map[string]bool, error) {
	resp, err := s.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	running := map[string]bool{}
	for _, t := range resp.Tasks {
		if t.Status != task.Status_STOPPED {
			running[t.ID] = true
		}
	}
	return running, nil
}

// livePods returns the uids of the pods in which anything runs. A container that
// waits for a restart after a crash needs its image too; the sandbox of its pod
// runs meanwhile.
func livePods(list []containers.Container, running map[string]bool) map[string]bool {
	pods := map[string]bool{}
	for _, c := range list {
		if running[c.ID] {
			pods[c.Labels[labelPod]] = true
		}
	}
	return pods
}

// Delete removes url from the application's own reference to an image: the one
// with identity id, or else the one that url names now. If the reference has other
// urls, the name url is removed too, unless another application has the image or a
// container was made by that name. With the last url the reference is removed, and
// with the last reference of any application the image. An image that a container
// runs and no other application needs is not changed. A missing image is not an error.
func (s *Store) Delete(ctx context.Context, app, url string, id imagestore.Identity) error {
	list, err := s.all(ctx)
	if err != nil {
		return err
	}
	tag := Canonical(url)
	for _, st := range list {
		if id.Config != "" && !st.is(imagestore.Identity{Config: id.Config}) || id.Config == "" && !slices.Contains(st.names, tag) {
			continue
		}
		if err := s.deleteOne(ctx, app, url, st.own(app, id), st); err != nil {
			return err
		}
	}
	return nil
}

// deleteOwn is Delete of the image that an own reference names now.
func (s *Store) deleteOwn(ctx context.Context, app, url, own string) error {
	st, err := s.named(ctx, own, imagestore.Identity{})
	if errors.Is(err, submodules.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.deleteOne(ctx, app, url, own, st)
}

func (s *Store) deleteOne(ctx context.Context, app, url, own string, st *stored) error {
	tag := Canonical(url)
	if !slices.Contains(st.names, own) {
		return nil
	}
	is := s.client.ImageService()
	urls := slices.DeleteFunc(strings.Fields(st.labels[own][labelURLs]), func(u string) bool { return image.SameRef(u, url) })
	used, err := s.used(ctx)
	if err != nil {
		return err
	}
	if len(urls) > 0 {
		if slices.Contains(st.names, tag) && !used.names[tag] && !s.ownedByOthers(app, st) {
			if err := durable.Point("delete.name"); err != nil {
				return err
			}
			if err := ignoreMissing(is.Delete(ctx, tag)); err != nil {
				return fmt.Errorf("delete image %s: %w", tag, err)
			}
		}
		_, err := is.Update(ctx, images.Image{Name: own, Target: st.target, Labels: map[string]string{labelURLs: strings.Join(urls, " ")}}, "labels."+labelURLs)
		return ignoreMissing(err)
	}
	if used.of(st) && !s.ownedByOthers(app, st) {
		return nil
	}
	// Names that belong to nobody else: the one we gave the image, and those that
	// the CRI plugin gives every image.
	var derived []string
	others := false
	for _, n := range st.names {
		switch {
		case n == own:
		case n == tag, strings.HasPrefix(n, "sha256:"), strings.Contains(n, "@sha256:"):
			derived = append(derived, n)
		default:
			others = true
		}
	}
	if others {
		derived = nil
	}
	for _, n := range append(derived, own) {
		var opts []images.DeleteOpt
		if n == own {
			opts = append(opts, images.SynchronousDelete())
		}
		if err := durable.Point("delete.name"); err != nil {
			return err
		}
		if err := ignoreMissing(is.Delete(ctx, n, opts...)); err != nil {
			return fmt.Errorf("delete image %s: %w", n, err)
		}
	}
	return nil
}

func (s *Store) ownedByOthers(app string, st *stored) bool {
	owns := st.owns(app)
	return slices.ContainsFunc(st.names, func(n string) bool { return imagestore.IsOwnRef(n) && !slices.Contains(owns, n) })
}

// Purge deletes all of the application's images.
func (s *Store) Purge(ctx context.Context, app string) error {
	list, err := s.all(ctx)
	if err != nil {
		return err
	}
	for _, st := range list {
		for _, own := range st.owns(app) {
			for _, url := range st.urls([]string{own}) {
				if err := s.deleteOwn(ctx, app, url, own); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func missing(ref string, id imagestore.Identity) error {
	what := ref
	if id.Config != "" {
		what += " (" + id.Config.String() + ")"
	}
	return submodules.Mark(fmt.Errorf("image %s is not in containerd", what), submodules.ErrNotFound)
}

func ignoreMissing(err error) error {
	if errors.Is(err, errdefs.ErrNotFound) || errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
