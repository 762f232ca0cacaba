package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/docker/docker/api/types/container"
	dimage "github.com/docker/docker/api/types/image"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// carryOut does what the plan says. Every step may be done again.
func (e *Engine) carryOut(ctx context.Context, s RepairSpec, plan *repairPlan) error {
	var old []Image
	for _, p := range plan.Images {
		if p.ID == "" {
			continue
		}
		// The same ID may be loaded again already, by an earlier call.
		img, err := e.Inspect(ctx, p.ID)
		if errors.Is(err, submodules.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if damages, err := e.Damages(ctx, img); err != nil {
			return err
		} else if len(damages) > 0 {
			old = append(old, img)
		}
	}
	if err := e.removeImages(ctx, old); err != nil {
		return err
	}
	for _, p := range plan.Images {
		if err := e.reload(ctx, s.Dir, p); err != nil {
			return fmt.Errorf("image %s: %w", p.Config, err)
		}
	}
	if err := e.Sync(ctx); err != nil {
		return err
	}
	plan.Done = true
	spool := imagestore.RepairDir(s.Dir)
	if err := spool.WritePlan(plan); err != nil {
		return err
	}
	return spool.Clear()
}

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

// reload loads an image out of the spool, verifies it, and gives it its names.
func (e *Engine) reload(ctx context.Context, dir string, p repairImage) error {
	img, err := e.Find(ctx, "", p.identity(), "")
	if errors.Is(err, submodules.ErrNotFound) {
		e.log(fmt.Sprintf("loading image %s", p.Tags[0]))
		if err := e.loadKept(ctx, dir, p); err != nil {
			return err
		}
		img, err = e.Find(ctx, "", p.identity(), p.Tags[0])
	}
	if err != nil {
		return err
	}
	damages, err := e.Damages(ctx, img)
	if err != nil {
		return err
	}
	if len(damages) > 0 {
		return submodules.Mark(fmt.Errorf("the engine kept what was damaged (%s)", damages[0]), submodules.ErrContent)
	}
	for _, tag := range p.Tags {
		if err := e.Tag(ctx, img, tag); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) loadKept(ctx context.Context, dir string, p repairImage) error {
	spool := imagestore.RepairDir(dir)
	config, err := os.ReadFile(spool.Path(p.Config))
	if err != nil {
		return err
	}
	var layers []image.Layer
	for _, d := range p.DiffIDs {
		l, ok := spool.Layer(d)
		if !ok {
			return fmt.Errorf("layer %s is not in %s any more", d, dir)
		}
		layers = append(layers, l)
	}
	img, err := image.New(config, layers)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() {
		_ = pw.CloseWithError(image.WriteArchive(pw, image.ArchiveSpec{Image: img, RepoTags: p.Tags[:1]}))
	}()
	err = target{e: e}.Load(ctx, struct{ io.Reader }{pr})
	pr.CloseWithError(errors.New("the engine reads no more"))
	return err
}
