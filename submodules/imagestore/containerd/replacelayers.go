package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// RepairSpec says what to repair.
type RepairSpec struct {
	App    string
	Want   []imagestore.Damaged
	Dir    string // of the repair's own, outlives the call
	Source string // directory with image archives, "" for none
	Finish bool   // only end what was begun
	// Users returns the applications that run the containers, which are made of
	// images with the own references refs. A container of nobody is an error.
	Users func(ctx context.Context, refs []string, running []Container) (apps []string, err error)
	// Stop ends an application's containers, with its data kept.
	Stop func(ctx context.Context, app string) error
}

// Container is one of a pod of which anything runs.
type Container struct{ ID, PodUID, PodNamespace, Pod string }

func (c Container) String() string {
	if c.PodUID == "" {
		return "container " + c.ID
	}
	return fmt.Sprintf("pod %s in %s", c.Pod, c.PodNamespace)
}

// repairPlan is what a repair does. From the moment it is durable the repair is
// carried through, also after a crash.
type repairPlan struct {
	Images []repairImage   `json:"images"`
	Chains []image.Digest  `json:"chains,omitempty"` // that are unpacked anew, with all that stands on them
	Blobs  []digest.Digest `json:"blobs,omitempty"`  // that are replaced
	Apps   []string        `json:"apps,omitempty"`   // had containers: to be rolled out again
	Done   bool            `json:"done,omitempty"`
}

type repairImage struct {
	URL     string         `json:"url,omitempty"` // of one that is missing
	Config  image.Digest   `json:"config"`
	DiffIDs []image.Digest `json:"diff_ids"`
	Names   []string       `json:"names"`           // the first is an own reference, unless nothing of it is replaced
	Floor   image.Digest   `json:"floor,omitempty"` // the chain of its layers that stay as they are unpacked
}

func (p repairImage) identity() imagestore.Identity {
	return imagestore.Identity{Config: p.Config, DiffIDs: p.DiffIDs}
}

// Repair makes images whole: layers whose files are damaged are unpacked again,
// with all that stands on them, and blobs replaced. Before anything is removed,
// what containerd has not got whole is in spec.Dir, from spec.Source. It
// returns the applications that were stopped, which only damaged files need.
func (s *Store) Repair(ctx context.Context, spec RepairSpec) ([]string, error) {
	plan, err := imagestore.ResumeOrPlan(imagestore.RepairDir(spec.Dir), spec.Finish, func() (*repairPlan, error) { return s.planRepair(ctx, spec) })
	if err != nil || plan == nil {
		return nil, err
	}
	if plan.Done {
		return plan.Apps, nil
	}
	if err := s.carryOut(ctx, spec, plan); err != nil {
		return nil, fmt.Errorf("the repair is not at its end; mender-app resume goes on with it: %w", err)
	}
	return plan.Apps, nil
}

// carryOut does what the plan says. Every step may be done again.
func (s *Store) carryOut(ctx context.Context, spec RepairSpec, plan *repairPlan) error {
	if err := durable.Point("repair.planned"); err != nil {
		return err
	}
	for _, app := range plan.Apps {
		s.log("stopping %s, to replace its image", app)
		if err := spec.Stop(ctx, app); err != nil {
			return fmt.Errorf("stop %s: %w", app, err)
		}
	}
	if err := durable.Point("repair.stopped"); err != nil {
		return err
	}
	release, err := s.holdFloors(ctx, plan)
	if err != nil {
		return err
	}
	defer release()
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
		if err := s.dropBlobs(ctx, plan.Blobs...); err != nil {
			return err
		}
	}
	if err := durable.Point("repair.dropped"); err != nil {
		return err
	}
	dir := imagestore.RepairDir(spec.Dir)
	for _, p := range plan.Images {
		if err := s.reload(ctx, dir, p); err != nil {
			return fmt.Errorf("image %s: %w", p.Config, err)
		}
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	if err := durable.Point("repair.loaded"); err != nil {
		return err
	}
	plan.Done = true
	if err := dir.WritePlan(plan); err != nil {
		return err
	}
	return dir.Clear()
}

// holdFloors keeps containerd from collecting the layers that stay while those
// on top of them are away.
func (s *Store) holdFloors(ctx context.Context, plan *repairPlan) (release func(), err error) {
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

// standing are the snapshots of chains, and all that stand on them, each after
// those on it.
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

// removeSnapshots removes the snapshots of chains with all that stand on them,
// and the records of containers that have ended. What still ends is waited for.
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

// removeStanding removes snapshots, and what has ended of which they are the
// files. What keeps it from that and may pass is left.
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
		// There is something new on it; or something that was on it was
		// collected, which containerd does not strike off below (1.6): then its
		// collector alone removes this one.
		return err, s.unreference(ctx, keys)
	}
	return nil, nil
}

// unreference has containerd collect snapshots that only images have. Unpacking
// an image gives it the reference back.
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
			return fmt.Errorf("let go of the snapshots of %s: %w", st.config, err)
		}
	}
	return s.collect(ctx)
}

// containersOf returns the containers whose files are in the snapshots: those
// of pods of which anything runs, and the ids of the others.
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

// reload makes an image whole, verifies it, and gives it its names.
func (s *Store) reload(ctx context.Context, dir imagestore.RepairDir, p repairImage) error {
	st, err := s.find(ctx, p.identity())
	if err != nil {
		return err
	}
	if st == nil || slices.ContainsFunc(p.DiffIDs, dir.Has) {
		s.log("loading image %s again", p.Names[0])
		if err := s.loadKept(ctx, dir, p, st); err != nil {
			return err
		}
		if st, err = s.find(ctx, p.identity()); err != nil {
			return err
		}
	}
	if st == nil {
		return submodules.Mark(errors.New("containerd does not have it after it was loaded"), submodules.ErrContent)
	}
	if err := s.unpack(ctx, st); err != nil {
		return err
	}
	if p.URL != "" {
		if err := s.Tag(ctx, p.Names[0], p.URL, p.identity()); err != nil {
			return err
		}
	}
	for _, n := range p.Names {
		if err := s.name(ctx, images.Image{Name: n, Target: st.target}); err != nil {
			return err
		}
	}
	list, err := s.damages(ctx, st, 0)
	if err == nil && len(list) > 0 {
		err = submodules.Mark(fmt.Errorf("containerd kept what was damaged (%s)", list[0].what), submodules.ErrContent)
	}
	return err
}

// loadKept loads an image of what was kept; what containerd has whole is
// left out. st is nil where it has nothing.
func (s *Store) loadKept(ctx context.Context, dir imagestore.RepairDir, p repairImage, st *stored) error {
	var config []byte
	var err error
	if dir.Has(p.Config) {
		config, err = os.ReadFile(dir.Path(p.Config))
	} else if st != nil {
		config, err = s.readSmall(ctx, st.desc)
	}
	if err != nil {
		return err
	}
	omit := map[image.Digest]image.Descriptor{}
	var layers []image.Layer
	for i, d := range p.DiffIDs {
		l, ok := dir.Layer(d)
		if !ok && st == nil {
			return fmt.Errorf("layer %s is not in %s any more", d, dir)
		}
		if !ok {
			have := st.layers[i]
			l = image.Layer{DiffID: d, Size: -1}
			omit[d] = image.Descriptor{MediaType: have.MediaType, Digest: image.Digest(have.Digest), Size: have.Size}
		}
		layers = append(layers, l)
	}
	img, err := image.New(config, layers)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() {
		_ = pw.CloseWithError(image.WriteArchive(pw, image.ArchiveSpec{Image: img, RepoTags: p.Names[:1], Omit: omit}))
	}()
	err = s.Load(ctx, pr)
	pr.CloseWithError(errors.New("containerd reads no more"))
	return err
}

// ownFirst puts an own reference at the head of an image's names.
func ownFirst(names []string) []string {
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case imagestore.IsOwnRef(a) == imagestore.IsOwnRef(b):
			return strings.Compare(a, b)
		case imagestore.IsOwnRef(a):
			return -1
		}
		return 1
	})
	return names
}
