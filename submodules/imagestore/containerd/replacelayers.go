package containerd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	ocidigest "github.com/opencontainers/go-digest"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// repairStore is the node's store as Repair sees it.
type repairStore struct {
	*Store
	users func(ctx context.Context, refs []string, running []Container) (apps []string, err error)
	stop  func(ctx context.Context, app string) error
}

// RepairStore returns the store as one to be repaired. Layers with damaged files
// are unpacked again, with all layers on top of them; damaged blobs are replaced.
// Applications are stopped only if files are damaged.
//
// users returns the applications that the containers belong to; their images have
// the own references refs. A container of no application is an error. stop stops
// an application's containers and keeps its data.
func (s *Store) RepairStore(users func(ctx context.Context, refs []string, running []Container) (apps []string, err error), stop func(ctx context.Context, app string) error) imagestore.RepairStore {
	return repairStore{s, users, stop}
}

// Container is a container of a pod in which anything runs.
type Container struct{ ID, PodUID, PodNamespace, Pod string }

func (c Container) String() string {
	if c.PodUID == "" {
		return "container " + c.ID
	}
	return fmt.Sprintf("pod %s in %s", c.Pod, c.PodNamespace)
}

// RemoveDamaged implements imagestore.RepairStore.
func (t repairStore) RemoveDamaged(ctx context.Context, plan *imagestore.RepairPlan) (release func(), err error) {
	s := t.Store
	for _, app := range plan.Apps {
		s.log("stopping %s, to replace its image", app)
		if err := t.stop(ctx, app); err != nil {
			return nil, fmt.Errorf("stop %s: %w", app, err)
		}
	}
	if err := durable.Point("repair.stopped"); err != nil {
		return nil, err
	}
	if release, err = s.holdFloors(ctx, plan); err != nil {
		return nil, err
	}
	if err := s.removeDamaged(ctx, plan); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// removeDamaged removes the layers and the blobs of a plan.
func (s *Store) removeDamaged(ctx context.Context, plan *imagestore.RepairPlan) error {
	if err := s.endLeases(ctx); err != nil {
		return err
	}
	if err := s.removeSnapshots(ctx, plan.Chains); err != nil {
		return err
	}
	if err := durable.Point("repair.removed"); err != nil {
		return err
	}
	if len(plan.Blobs) > 0 {
		var blobs []ocidigest.Digest
		for _, d := range plan.Blobs {
			blobs = append(blobs, ocidigest.Digest(d))
		}
		if err := s.dropBlobs(ctx, blobs...); err != nil {
			return err
		}
	}
	return durable.Point("repair.dropped")
}

// Damages implements imagestore.RepairStore.
func (s *Store) Damages(ctx context.Context, img imagestore.Stored) ([]string, error) {
	return s.Verify(ctx, "", img.Identity)
}

// holdFloors keeps containerd from collecting the undamaged layers below the damaged
// ones while the damaged ones are removed.
func (s *Store) holdFloors(ctx context.Context, plan *imagestore.RepairPlan) (release func(), err error) {
	held, end, err := s.client.WithLease(ctx)
	if err != nil {
		return nil, fmt.Errorf("containerd lease: %w", err)
	}
	release = func() { _ = end(context.WithoutCancel(ctx)) }
	for _, p := range plan.Images {
		if p.Floor == "" {
			continue
		}
		if err := s.hold(held, "snapshots/"+s.snapshotter, p.Floor.String()); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// standing returns the snapshots of chains and all that are based on them, each
// after those based on it.
func (s *Store) standing(ctx context.Context, chains []image.Digest) (keys []string, err error) {
	children, there := map[string][]string{}, map[string]bool{}
	err = s.snapshots().Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		there[info.Name] = true
		children[info.Parent] = append(children[info.Parent], info.Name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var add func(key string)
	add = func(key string) {
		for _, c := range children[key] {
			add(c)
		}
		if there[key] && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, c := range chains {
		add(c.String())
	}
	return keys, nil
}

// removeSnapshots removes the snapshots of chains, all that are based on them, and
// the records of stopped containers. It waits for containers that are stopping.
func (s *Store) removeSnapshots(ctx context.Context, chains []image.Digest) error {
	for end := time.Now().Add(time.Minute); ; {
		keys, err := s.standing(ctx, chains)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return s.collect(ctx)
		}
		last, err := s.removeStanding(ctx, keys)
		if err != nil {
			return err
		}
		if last != nil && time.Now().After(end) {
			return last
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// removeStanding removes snapshots and the stopped containers that use them. left is
// an obstacle that may go away by itself.
func (s *Store) removeStanding(ctx context.Context, keys []string) (left, err error) {
	running, ended, err := s.containersOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	if len(running) > 0 {
		return fmt.Errorf("%s does not end, and runs from a damaged image", running[0]), nil
	}
	for _, id := range ended {
		if err := ignoreMissing(s.client.ContainerService().Delete(ctx, id)); err != nil {
			return nil, fmt.Errorf("remove container %s: %w", id, err)
		}
	}
	for _, key := range keys {
		err := ignoreMissing(s.snapshots().Remove(ctx, key))
		if err == nil {
			continue
		}
		err = fmt.Errorf("remove snapshot %s: %w", key, err)
		if !errdefs.IsFailedPrecondition(err) {
			return nil, err
		}
		// Something new is based on it. Or something that was based on it was
		// collected, and containerd 1.6 still counts it: then only the garbage
		// collector can remove this one.
		return err, s.unreference(ctx, keys)
	}
	return nil, nil
}

// unreference makes containerd collect snapshots that only images use. Unpacking
// an image restores its reference.
func (s *Store) unreference(ctx context.Context, keys []string) error {
	list, err := s.all(ctx)
	if err != nil {
		return err
	}
	label := labelSnapshot + s.snapshotter
	for _, st := range list {
		if !slices.ContainsFunc(image.ChainIDs(st.diffIDs), func(c image.Digest) bool { return slices.Contains(keys, c.String()) }) {
			continue
		}
		_, err := s.content().Update(ctx, content.Info{Digest: st.desc.Digest, Labels: map[string]string{label: ""}}, "labels."+label)
		if err != nil {
			return fmt.Errorf("release the snapshots of %s: %w", st.config, err)
		}
	}
	return s.collect(ctx)
}

// containersOf returns the containers that use the snapshots: those of pods in
// which anything runs, and the ids of the others.
func (s *Store) containersOf(ctx context.Context, keys []string) (running []Container, ended []string, err error) {
	list, err := s.client.ContainerService().List(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	tasks, err := s.runningTasks(ctx)
	if err != nil {
		return nil, nil, err
	}
	pods := livePods(list, tasks)
	for _, c := range list {
		if c.Snapshotter != s.snapshotter || !slices.Contains(keys, c.SnapshotKey) {
			continue
		}
		uid := c.Labels[labelPod]
		if tasks[c.ID] || uid != "" && pods[uid] {
			running = append(running, Container{c.ID, uid, c.Labels["io.kubernetes.pod.namespace"], c.Labels["io.kubernetes.pod.name"]})
		} else {
			ended = append(ended, c.ID)
		}
	}
	return running, ended, nil
}
