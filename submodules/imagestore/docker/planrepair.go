package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// repairStore is the engine as Repair sees it.
type repairStore struct {
	target
	owner func(container.Summary) (app string, ok bool)
}

// RepairStore returns the engine as an image store to be repaired. owner returns
// the application that a container belongs to; ok is false if it belongs to none.
//
// An engine never loads a layer again that it has, even a damaged one, and keeps it
// while an image or a container uses it. So a repair removes all images that share a
// damaged layer, with their containers, and loads all of them again. The repair's
// directory needs the unpacked size of these images. Volumes stay.
func (e *Engine) RepairStore(tempDir string, owner func(container.Summary) (app string, ok bool)) imagestore.RepairStore {
	return repairStore{target{e, tempDir}, owner}
}

// affected has the images and layers that a repair has to replace.
type affected struct {
	images  []Image                 // to be removed, and loaded again
	missing []imagestore.Damaged    // to be loaded
	chains  map[image.Digest]Damage // of layers, by chain ID
	layers  map[image.Digest]Damage // by diffID, for a store that keeps layers by content
	urls    map[image.Digest]string // config → a name for people
}

// PlanRepair implements imagestore.RepairStore.
func (t repairStore) PlanRepair(ctx context.Context, q imagestore.RepairRequest, k *imagestore.Keeper) (*imagestore.RepairPlan, error) {
	e := t.e
	if e.Podman(ctx) {
		return nil, submodules.Mark(errors.New("the engine is Podman, which does not say what of an image is damaged, and nothing was changed: "+
			"remove the containers of the application and its images (podman rm -f CONTAINER, podman rmi -f IMAGE; other images that share a damaged layer, too), "+
			"then install the release again"), submodules.ErrContent)
	}
	a, err := e.affected(ctx, q)
	if err != nil || len(a.images)+len(a.missing) == 0 {
		return nil, err
	}
	apps, err := e.users(ctx, a.images, t.owner)
	if err != nil {
		return nil, err
	}
	plan := &imagestore.RepairPlan{Apps: apps}
	for _, img := range a.images {
		if !slices.ContainsFunc(img.Tags, imagestore.IsOwnRef) {
			return nil, submodules.Mark(fmt.Errorf("image %s belongs to no application and shares a damaged layer, so it keeps the engine from loading that again: "+
				"remove it (docker rmi %s), repair again, and pull it anew", imageName(img), imageName(img)), submodules.ErrContent)
		}
		plan.Images = append(plan.Images, imagestore.RepairImage{ID: img.ID, Config: img.Config, DiffIDs: img.DiffIDs, Names: imagestore.OwnFirst(img.Tags)})
	}
	for _, w := range a.missing {
		img, err := k.Missing(w)
		if err != nil {
			return nil, err
		}
		plan.Images = append(plan.Images, img)
	}
	return plan, e.keepLayers(ctx, k, a, plan, t.tempDir)
}

func imageName(img Image) string {
	if len(img.Tags) > 0 {
		return img.Tags[0]
	}
	return img.ID
}

// affected verifies the wanted images, and finds all images that share a damaged
// layer.
func (e *Engine) affected(ctx context.Context, s imagestore.RepairRequest) (*affected, error) {
	a := &affected{chains: map[image.Digest]Damage{}, layers: map[image.Digest]Damage{}, urls: map[image.Digest]string{}}
	ctd, err := e.containerd(ctx)
	if err != nil {
		return nil, err
	}
	whole := map[string]bool{} // image IDs
	bad := map[string]bool{}
	for _, w := range s.Want {
		a.urls[w.Config] = w.URL
		img, err := e.Find(ctx, s.App, w.Identity, "")
		if errors.Is(err, submodules.ErrNotFound) {
			a.missing = append(a.missing, w)
			continue
		}
		if err != nil {
			return nil, err
		}
		if whole[img.ID] || bad[img.ID] {
			continue
		}
		damages, err := e.Damages(ctx, img)
		if err != nil {
			return nil, err
		}
		if len(damages) == 0 {
			whole[img.ID] = true
			continue
		}
		bad[img.ID] = true
		for _, d := range damages {
			e.log(fmt.Sprintf("%s: %s", w.URL, d))
			a.chains[d.Chain] = d
			if ctd {
				a.layers[d.Layer] = d
			}
		}
	}
	if len(bad) == 0 {
		return a, nil
	}
	all, err := e.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, img := range all {
		shares := bad[img.ID]
		for i, chain := range image.ChainIDs(img.DiffIDs) {
			_, byChain := a.chains[chain]
			_, byLayer := a.layers[img.DiffIDs[i]]
			shares = shares || byChain || byLayer
		}
		if shares {
			a.images = append(a.images, img)
		}
	}
	return a, nil
}

// users returns the applications that have containers of the images. It fails, and
// says what to do, if a container belongs to no application, or if data would be
// lost.
func (e *Engine) users(ctx context.Context, images []Image, owner func(container.Summary) (string, bool)) (apps []string, err error) {
	list, err := e.containersOf(ctx, images)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		name := strings.TrimPrefix(strings.Join(c.Names, ","), "/")
		app, ok := owner(c)
		if i := slices.IndexFunc(images, func(img Image) bool { return madeFrom(c, img) }); ok {
			_, ok = images[i].OwnRef(app)
		}
		if !ok {
			return nil, submodules.Mark(fmt.Errorf("container %s belongs to no application and was made from a damaged image: remove it (docker rm -f %s), and repair again", name, name), submodules.ErrContent)
		}
		for _, m := range c.Mounts {
			if m.Type == "volume" && len(m.Name) == 64 { // an anonymous one is called by 64 hex digits
				return nil, submodules.Mark(fmt.Errorf("container %s keeps data in a volume without a name (%s), which a new container would not find: "+
					"save what is in it, remove the container (docker rm -f %s), and repair again", name, m.Destination, name), submodules.ErrContent)
			}
		}
		if !slices.Contains(apps, app) {
			apps = append(apps, app)
		}
	}
	slices.Sort(apps)
	return apps, nil
}

// containersOf lists containers in any state that were made from the images.
func (e *Engine) containersOf(ctx context.Context, images []Image) (of []container.Summary, err error) {
	list, err := e.cli.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, c := range list {
		if slices.ContainsFunc(images, func(img Image) bool { return madeFrom(c, img) }) {
			of = append(of, c)
		}
	}
	return of, nil
}

func madeFrom(c container.Summary, img Image) bool {
	return c.ImageID == img.ID || strings.TrimPrefix(c.Image, "sha256:") == strings.TrimPrefix(img.ID, "sha256:")
}
