package containerd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// labelExpire is on leases and snapshots that expire (containerd's garbage
// collector).
const labelExpire = "containerd.io/gc.expire"

// Distrust implements imagestore.Store. It removes content that only the lease of an
// interrupted load keeps, references to images that cannot be read, and the image
// itself if it is damaged.
func (s *Store) Distrust(ctx context.Context, q imagestore.LoadRequest) error {
	want := q.Want
	url, _ := submodules.SplitURL(q.URL)
	if err := s.dropHollow(ctx, want); err != nil {
		return err
	}
	if err := s.endLeases(ctx); err != nil {
		return err
	}
	if want.Config == "" {
		return nil
	}
	st, err := s.find(ctx, want)
	if err != nil || st == nil {
		return err
	}
	list, err := s.damages(ctx, st, 0)
	if err != nil || len(list) == 0 {
		return err
	}
	s.log("image %s is damaged (%s): loading it again", st.config, list[0].what)
	if err := s.Delete(ctx, q.App, url, want); err != nil {
		return err
	}
	needed := submodules.Mark(fmt.Errorf("it is damaged in containerd (%s), and something else needs it: run mender-app verify --repair", list[0].what), submodules.ErrContent)
	if still, err := s.find(ctx, want); err != nil {
		return err
	} else if still != nil {
		return needed
	}
	return s.dropUnpacked(ctx, st, list, needed)
}

// dropUnpacked removes the damaged files of a deleted image, which stopped
// containers can still use. It returns the error needed if another image has them
// or something runs from them.
func (s *Store) dropUnpacked(ctx context.Context, st *stored, list []damage, needed error) error {
	all := image.ChainIDs(st.diffIDs)
	var chains []image.Digest
	for _, d := range list {
		if len(d.files) > 0 {
			chains = append(chains, all[d.layer])
		}
	}
	if len(chains) == 0 {
		return nil
	}
	others, err := s.all(ctx)
	if err != nil {
		return err
	}
	for _, o := range others {
		if slices.ContainsFunc(image.ChainIDs(o.diffIDs), func(c image.Digest) bool { return slices.Contains(chains, c) }) {
			return needed
		}
	}
	keys, err := s.standing(ctx, chains)
	if err != nil {
		return err
	}
	if running, _, err := s.containersOf(ctx, keys); err != nil {
		return err
	} else if len(running) > 0 {
		return needed
	}
	return s.removeSnapshots(ctx, chains)
}

// dropHollow removes own references to an image whose manifest or config cannot be
// read. Such references are in no list, and keep containerd from collecting the
// rest of the image.
func (s *Store) dropHollow(ctx context.Context, want imagestore.Identity) error {
	list, err := s.client.ImageService().List(ctx)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, img := range list {
		if config, ok := imagestore.OwnConfig(img.Name); (!ok || config != want.Config) && !imagestore.IsManifestRef(img.Name, want.Config) {
			continue
		}
		have, err := s.resolve(ctx, img.Target, 0)
		if err != nil {
			return fmt.Errorf("image %s: %w", img.Name, err)
		}
		if len(have) > 0 {
			continue
		}
		s.log("removing the reference %s: its image cannot be read", img.Name)
		// The same is true of the other references to this manifest.
		for _, other := range list {
			if other.Target.Digest == img.Target.Digest {
				if err := ignoreMissing(s.client.ImageService().Delete(ctx, other.Name, images.SynchronousDelete())); err != nil {
					return fmt.Errorf("delete image %s: %w", other.Name, err)
				}
			}
		}
	}
	return nil
}

// endLeases ends the leases that were created before the machine was started and
// would expire within a day: nobody uses them any more. containerd then collects
// the content that only they kept: blobs, unpacked layers that were not synced, and
// layers that were being unpacked.
func (s *Store) endLeases(ctx context.Context) error {
	ls := s.client.LeasesService()
	list, err := ls.List(ctx)
	if err != nil {
		return fmt.Errorf("containerd leases: %w", err)
	}
	for _, l := range list {
		// A lease from the future was created before the clock was set back.
		if l.Labels[labelExpire] == "" || !l.CreatedAt.Before(s.booted) && !l.CreatedAt.After(time.Now().Add(time.Minute)) {
			continue
		}
		s.log("ending the lease %s of an interrupted load", l.ID)
		if err := ls.Delete(ctx, l, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("end lease %s: %w", l.ID, err)
		}
	}
	return nil
}

// collect starts containerd's garbage collection, and waits for its end.
func (s *Store) collect(ctx context.Context) error {
	ls := s.client.LeasesService()
	l, err := ls.Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Hour))
	if err == nil {
		err = ls.Delete(ctx, l, leases.SynchronousDelete)
	}
	if err != nil {
		return fmt.Errorf("containerd's garbage collector: %w", err)
	}
	return nil
}

// bootTime is the time when the machine was started, by its present clock.
func bootTime() time.Time {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(info.Uptime) * time.Second)
}
