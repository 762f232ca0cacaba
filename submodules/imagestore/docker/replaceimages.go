package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"
	dimage "github.com/docker/docker/api/types/image"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// RemoveDamaged implements imagestore.RepairStore.
func (t repairStore) RemoveDamaged(ctx context.Context, plan *imagestore.RepairPlan) (release func(), err error) {
	var old []Image
	for _, p := range plan.Images {
		if p.ID == "" {
			continue
		}
		// An earlier call may have loaded the same ID again already.
		img, err := t.e.Inspect(ctx, p.ID)
		if errors.Is(err, submodules.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if damages, err := t.e.Damages(ctx, img); err != nil {
			return nil, err
		} else if len(damages) > 0 {
			old = append(old, img)
		}
	}
	return func() {}, t.e.removeImages(ctx, old)
}

// Damages implements imagestore.RepairStore.
func (t repairStore) Damages(ctx context.Context, img imagestore.Stored) ([]string, error) {
	i, err := t.e.Inspect(ctx, img.ID)
	if err != nil {
		return nil, err
	}
	damages, err := t.e.Damages(ctx, i)
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(damages))
	for n, d := range damages {
		lines[n] = d.String()
	}
	return lines, nil
}

// Sync implements imagestore.RepairStore.
func (t repairStore) Sync(ctx context.Context) error { return t.e.Sync(ctx) }

// removeImages removes images with their containers.
func (e *Engine) removeImages(ctx context.Context, images []Image) error {
	list, err := e.containersOf(ctx, images)
	if err != nil {
		return err
	}
	for _, c := range list {
		name := strings.TrimPrefix(strings.Join(c.Names, ","), "/")
		e.log(fmt.Sprintf("removing container %s, to replace its image", name))
		if err := e.cli.ContainerStop(ctx, c.ID, container.StopOptions{}); err != nil && !IsNotFound(err) {
			e.log(fmt.Sprintf("warning: stop container %s: %v", name, err))
		}
		if err := e.cli.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}); err != nil && !IsNotFound(err) && !IsConflict(err) {
			return fmt.Errorf("remove container %s: %w", name, err)
		}
	}
	for _, img := range images {
		e.log(fmt.Sprintf("removing image %s", imageName(img)))
		for _, tag := range img.Tags {
			if _, err := e.Untag(ctx, tag); err != nil {
				return err
			}
		}
		_, err := e.cli.ImageRemove(ctx, img.ID, dimage.RemoveOptions{Force: true, PruneChildren: true})
		if err != nil && !IsNotFound(err) {
			return fmt.Errorf("remove image %s: %w", imageName(img), err)
		}
	}
	return nil
}
